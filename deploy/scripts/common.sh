# Functions that the scripts in this directory share.
# shellcheck shell=sh

HELM=${HELM:-helm}
KUBECTL=${KUBECTL:-kubectl}
unset CDPATH # with which cd would print where it went
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck disable=SC2034 # used by those who read this file
chart=$here/../chart/accelshare
script=$(basename "$0")

stop() {
  # Print an error, and each further argument as a line with what to do.
  printf '%s: %s\n' "$script" "$1" >&2
  shift
  [ $# -eq 0 ] || printf '  %s\n' "$@" >&2
  exit 1
}

usage() {
  # Print the comment at the top of the script.
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
