#!/bin/sh
# Show the cards of one node or of all nodes, as the extender counts them; uses the certificates of the cluster.
#
#   inspect.sh [--preset NAME] [--address HOST:PORT] [NODE]
#
#   --preset NAME        gpushare, xpushare or gcushare: the format; default gcushare
#   --address HOST:PORT  address of the extender; default: its Service, which only nodes of the cluster can reach
#
# ../inspect.sh prints the answer. Set KUBECTL to use another program than kubectl.
set -eu
. "$(dirname "$0")/common.sh"

preset=gcushare
address=""
node=""
while [ $# -gt 0 ]; do
  case $1 in
    --preset | --address)
      [ $# -gt 1 ] || stop "$1 needs a value" ;;
  esac
  case $1 in
    --preset) preset=$2; shift 2 ;;
    --address) address=$2; shift 2 ;;
    -h | --help) usage 0 ;;
    -*) stop "there is no flag $1" "flags: $script --help" ;;
    *) [ -z "$node" ] || usage; node=$1; shift ;;
  esac
done
case $preset in
  gpushare) noun=GPU ;;
  xpushare) noun=XPU ;;
  gcushare) noun=GCU ;;
  *) stop "there is no inspect of $preset" "there are: gpushare, xpushare, gcushare" ;;
esac
need "$KUBECTL" curl
need_cluster

found=$("$KUBECTL" get services --all-namespaces \
  --selector app.kubernetes.io/part-of=accelshare,app.kubernetes.io/component=extender \
  --output=jsonpath='{range .items[*]}{.metadata.namespace} {.spec.clusterIP} {.spec.ports[0].port}{"\n"}{end}' | head -n 1)
[ -n "$found" ] || stop "there is no extender in this cluster" "install it with: $here/deploy.sh"
namespace=${found%% *}
port=${found##* }
ip=${found#* }
ip=${ip% *}
case $ip in *:*) ip="[$ip]" ;; esac # of IPv6
address=${address:-$ip:$port}

# The client certificate is stored for this call only, in a private directory that is removed at the end.
umask 077
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
scheme=http
host=$address
secret() {
  "$KUBECTL" get secret accelshare-scheduler-tls --namespace "$namespace" --output=jsonpath="{.data.$1}" --ignore-not-found
}
if [ -n "$(secret 'tls\.crt')" ]; then
  scheme=https
  host=accelshare-extender:${address##*:} # the name that its certificate always has
  for name in tls.crt tls.key ca.crt; do
    secret "$(printf '%s' "$name" | sed 's/\./\\./')" | base64 -d >"$home/$name"
  done
  {
    printf 'cacert = "%s"\ncert = "%s"\nkey = "%s"\n' "$home/ca.crt" "$home/tls.crt" "$home/tls.key"
    printf 'connect-to = "%s:%s"\n' "$host" "$address"
  } >"$home/.curlrc"
fi
CURL_HOME=$home NO_PROXY='*' "$here/../inspect.sh" --noun "$noun" --url "$scheme://$host/$preset-scheduler/inspect" ${node:+"$node"}
