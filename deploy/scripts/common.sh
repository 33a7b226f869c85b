# Shared by the scripts beside this file; it does nothing by itself.
# shellcheck shell=sh

HELM=${HELM:-helm}
KUBECTL=${KUBECTL:-kubectl}
unset CDPATH # with which cd would print where it went
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck disable=SC2034 # used by those who read this file
chart=$here/../chart/accelshare
script=$(basename "$0")

stop() {
  # What went wrong, and in the other arguments, line by line, what to do.
  printf '%s: %s\n' "$script" "$1" >&2
  shift
  [ $# -eq 0 ] || printf '  %s\n' "$@" >&2
  exit 1
}

usage() {
  # The comment at the top of the script is its manual.
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p;}' "$0" >&2
  exit "${1:-2}"
}

need() {
  for tool in "$@"; do
    command -v "$tool" >/dev/null 2>&1 || stop "$tool is not on PATH" "install it, or name it with the variable HELM or KUBECTL"
  done
}

need_cluster() {
  "$KUBECTL" version >/dev/null 2>&1 || stop "the cluster cannot be reached" \
    "look at: $KUBECTL version" "choose another cluster with the variable KUBECONFIG"
}
