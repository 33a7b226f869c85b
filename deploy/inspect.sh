#!/bin/sh
# Show the cards of one node or of all nodes, as the extender counts them, in the format of gcushare's inspect.sh.
#
#   inspect.sh [--url URL] [--noun WORD] [NODE]
#
# URL is the inspect address of the extender with its prefix; default: $ACCELSHARE_INSPECT_URL. Set certificates with curl's own
# variables or ~/.curlrc. If something is missing, the script prints it on standard error and ends with exit code 1.
set -eu

url=${ACCELSHARE_INSPECT_URL:-http://127.0.0.1:12345/gcushare-scheduler/inspect}
noun=${ACCELSHARE_NOUN:-GCU}
node=""

usage() {
  echo "usage: inspect.sh [--url URL] [--noun WORD] [NODE]" >&2
  exit 2
}

while [ $# -gt 0 ]; do
  case $1 in
    --url) [ $# -gt 1 ] || usage; url=$2; shift 2 ;;
    --url=*) url=${1#--url=}; shift ;;
    --noun) [ $# -gt 1 ] || usage; noun=$2; shift 2 ;;
    --noun=*) noun=${1#--noun=}; shift ;;
    -h | --help) usage ;;
    -*) echo "inspect.sh: there is no flag $1" >&2; usage ;;
    *) [ -z "$node" ] || usage; node=$1; shift ;;
  esac
done

pretty() {
  if command -v python3 >/dev/null 2>&1; then
    python3 -m json.tool --no-ensure-ascii
  elif command -v jq >/dev/null 2>&1; then
    jq --indent 4 .
  else
    cat
    echo
  fi
}

said=$(mktemp)
trap 'rm -f "$said"' EXIT
status=$(curl --silent --show-error --max-time 30 --output "$said" --write-out '%{http_code}' "${url%/}${node:+/$node}") || {
  echo "inspect.sh: the extender cannot be reached at $url; give --url or set ACCELSHARE_INSPECT_URL" >&2
  exit 1
}
if [ "$status" != 200 ]; then
  echo "inspect.sh: the extender answered $status: $(cat "$said")" >&2
  exit 1
fi
if [ -n "$node" ]; then
  echo "inspect $noun usage of node $node from scheduler cache"
else
  echo "inspect $noun usage of all nodes from scheduler cache"
fi
pretty <"$said"
