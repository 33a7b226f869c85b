#!/bin/sh
# Install accelshare or change an installation: label the nodes whose cards are shared, then run helm.
#
#   deploy.sh --preset NAME [--preset NAME]... [flags] [-- further arguments of helm]
#
#   --preset NAME     gpushare, xpushare, gcushare or stc; can be repeated
#   --nodes "A B"     share the cards of these nodes; --all-nodes: of all nodes. Without either, the script asks
#   --no-labels       label no node
#   --namespace NAME  default kube-system
#   --release NAME    default accelshare
#   --image NAME:TAG  default accelshare at the chart's version
#   --timeout TIME    how long helm waits for its Jobs, default 15m
#
# Safe to repeat: the same call again changes nothing. Set HELM and KUBECTL to use other programs than those on PATH.
set -eu
. "$(dirname "$0")/common.sh"

presets=""
nodes=""
labels=ask
namespace=kube-system
release=accelshare
image=""
timeout=15m

while [ $# -gt 0 ]; do
  case $1 in
    --preset | --nodes | --namespace | --release | --image | --timeout)
      [ $# -gt 1 ] || stop "$1 needs a value" ;;
  esac
  case $1 in
    --preset) presets="$2 $presets"; shift 2 ;;
    --nodes) nodes=$2; labels=named; shift 2 ;;
    --all-nodes) labels=all; shift ;;
    --no-labels) labels=none; shift ;;
    --namespace) namespace=$2; shift 2 ;;
    --release) release=$2; shift 2 ;;
    --image) image=$2; shift 2 ;;
    --timeout) timeout=$2; shift 2 ;;
    -h | --help) usage 0 ;;
    --) shift; break ;;
    *) stop "there is no flag $1" "flags: $script --help" ;;
  esac
done

known=""
for file in "$chart"/presets/*.yaml; do
  known="$known $(basename "$file" .yaml)"
done
[ -n "$presets" ] || stop "which cards? give --preset" "there are:$known"
for preset in $presets; do
  [ -f "$chart/presets/$preset.yaml" ] || stop "there is no preset $preset" "there are:$known"
done
need "$HELM" "$KUBECTL"
need_cluster

echo "1. Nodes"
there=$("$KUBECTL" get nodes --output=jsonpath='{range .items[*]}{.metadata.name}{"\n"}{end}')
[ -n "$there" ] || stop "the cluster has no nodes"
printf '%s\n' "$there" | sed 's/^/   /'
if [ "$labels" = ask ]; then
  printf 'Nodes that share their cards, separated by blanks (Enter: all of them): '
  read -r nodes || stop "nobody answers" "without a terminal say --nodes \"A B\", --all-nodes or --no-labels"
  if [ -n "$nodes" ]; then labels=named; else labels=all; fi
fi
case $labels in
  all) nodes=$there ;;
  none) nodes="" ;;
esac
list=""
for node in $nodes; do
  [ "$labels" = all ] || printf '%s\n' "$there" | grep -Fqx -- "$node" || stop "the cluster has no node $node" "choose among those above"
  list=${list:+$list,}$node
done
echo "   sharing: ${list:-as they are labelled}"

echo "2. helm upgrade --install $release in namespace $namespace"
if [ -n "$("$HELM" list --pending --namespace "$namespace" --filter "^$release\$" --short)" ]; then
  stop "an earlier helm was ended in the middle of its work on $release, or is still at it" \
    "if nobody is at it, after an upgrade: $HELM rollback $release --namespace $namespace" \
    "after the first install: $here/delete.sh --namespace $namespace --release $release" \
    "then the same command goes on: $script"
fi
# The names go through standard input: those of a large cluster do not fit into a command line.
names() {
  printf 'nodes:\n  names:\n'
  for node in $nodes; do printf '  - "%s"\n' "$node"; done
}
[ -z "$list" ] || set -- --values - "$@"
if [ -n "$image" ]; then
  repository=${image%:*}
  case $image in
    *:*) case ${image##*:} in */*) stop "$image has no tag" "give it as NAME:TAG" ;; esac ;;
    *) stop "$image has no tag" "give it as NAME:TAG" ;;
  esac
  set -- --set "image.repository=$repository" --set-string "image.tag=${image##*:}" "$@"
fi
# Each comes before the one that was put there last, and the last one given is the first here: helm reads them as they were given.
for preset in $presets; do
  set -- --values "$chart/presets/$preset.yaml" "$@"
done
[ "$namespace" = kube-system ] || set -- --create-namespace "$@"
names | "$HELM" upgrade --install "$release" "$chart" --namespace "$namespace" --timeout "$timeout" "$@" || stop "helm could not do it" \
  "what a Job of the install said: $KUBECTL logs -n $namespace -l app.kubernetes.io/component=hook --all-containers --prefix" \
  "when the cause is gone, the same command goes on: $script"

echo "3. Done. To look at it: $KUBECTL get pods -n $namespace -l app.kubernetes.io/part-of=accelshare"
