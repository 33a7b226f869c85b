"""The text of docs/trust.md and docs/zh/trust.md, and the Chinese names of faults.

Belongs here: text. Never: numbers of a run.
"""
# ruff: noqa: E501 – these are lines of pages

from collections.abc import Mapping
from typing import Final

from tests.trust.history import GRACE_S
from tests.trust.stage import CARDS, NODES, SIZE

COMMANDS: Final = """\
```
make trust                              # everything, writes this page; the part on a node needs root
make trust SEED=7 PODS=2000 FAULTS=220  # the same plan again
python -m tests.trust --only control-plane --soak 60
python -m tests.trust --short --seed 14 # the run of tests/e2e/test_trust.py
```
"""

TEXTS: Final[Mapping[str, Mapping[str, str]]] = {
    "en": {
        "head": "# Fault runs\n\n[中文](zh/trust.md) · Written by `make trust`. Do not edit: run it again.\n",
        "how": f"""\
Pods arrive and leave while faults strike. Faults and pods are drawn from a seed, which repeats them; moments depend on the
machine. Up to three faults strike at once.

- **Control plane**: real etcd, kube-apiserver and kube-scheduler, two extenders with a lease, {NODES} fake Nodes with {CARDS} cards of
  {SIZE} units. Fault proxies are between kube-scheduler and extender, kube-scheduler and API server, extender and API server.
- **Node**: the real kubelet, containerd and kube-scheduler of `make up`, one extender and one agent, fake cards; once with delivery by
  the container runtime (NRI), once by device plugins. Beside each pod with a card is one without, which shows what Kubernetes itself
  loses.

A checker that shares no code with accelshare judges every version of every pod and Node. On the control plane it reads them from etcd,
so that it misses none while the API server is down. [Its tests](../tests/trust/test_history.py) show that it finds bad histories.
""",
        "rules": "## What is checked",
        "rules_rows": f"""\
- A bind never puts more on a card than the card has. If a card shrank or left, a bind may still use what the Node showed within the
  last {GRACE_S:g} s, because the extender learns it later.
- A bind names as many cards and units as the pod requests. A pod's node and record do not change after its bind.
- No pod disappears that nobody deleted. Every pod is bound in the end, unless it was deleted right after its creation.
- Without faults, the extender's ledger, a ledger made from a new list (`accelshare inspect`), the ledger of an extender that was just
  started and the checker's own sums are equal.
- On the node, each container sees the cards of its record and no others, and pods without a card see none.
""",
        "control": "## On the control plane",
        "control_head": "seed|faults|pods|binds|versions seen|most pods bound at once|pods that had to wait|longest time without a bind "
        "although a pod fits|the same after the last fault|ledgers compared|processes started again|violations",
        "smaller": "A run here is smaller than that of `make trust` by default ({faults} faults, {pods:,} pods).",
        "waits": """\
A wait may last over several faults, all of which are named. A fault lasts until the part that it struck answers again: on a busy machine a
killed API server needs up to a minute for that. After the last fault, what is left is the start of extenders whose processes were killed (a
second on an idle machine, 10 to 20 s where more than ten processes wait for each core), the 3 s of the dead holder's Lease, and the takeover (below 1 s).
""",
        "kinds": "### Faults by kind",
        "kind": "fault",
        "node": "## On a real node",
        "node_head": "delivery|seed|faults|pods with a card|containers compared with their record|failed with a card|failed without|violations",
        "node_words": "With device plugins, kubelet rejects for good a pod that it admits while no plugin serves; these pods are counted "
        "here and are no violation. With NRI there must be no difference.",
        "none": "This part did not run.",
        "during": "during",
        "not_run": "## What is not covered",
        "not_run_rows": """\
- Clocks of kube-scheduler, kube-apiserver, etcd, kubelet and containerd; full disks for their own files, but for kubelet's checkpoint of
  device ids.
- A reboot where device plugins deliver: kubelet rejects a pod that it finds again before a plugin has registered, as with any plugin.
- Connections between kube-apiserver and etcd; kubelet's connection to the API server. Their processes are killed and paused instead.
- Several Nodes with a real kubelet, several kube-schedulers, preemption, resizes.
- Losses of data in etcd: its process is killed, its files stay.
""",
        "again": "## Again",
    },
    "zh": {
        "head": "# 故障测试\n\n[English](../trust.md) · 由 `make trust` 写成。不要编辑，重新运行即可。\n",
        "how": f"""\
Pod 不断到来和离开，同时发生故障。故障和 Pod 由一个种子决定，用同一个种子可以重复；发生的时刻取决于机器。最多三个故障同时发生。

- **控制平面**：真实的 etcd、kube-apiserver 和 kube-scheduler，两个用 Lease 选主的 extender，{NODES} 个假 Node，各有 {CARDS} 张 {SIZE} 个单位的卡。
  kube-scheduler 与 extender、kube-scheduler 与 API server、extender 与 API server 之间有故障代理。
- **节点**：`make up` 的真实 kubelet、containerd 和 kube-scheduler，一个 extender 和一个 agent，假卡；一次由容器运行时（NRI）交付，一次由
  device plugin 交付。每个有卡的 Pod 旁边有一个没有卡的 Pod，它说明 Kubernetes 自己会损失什么。

一个与 accelshare 没有共同代码的检查器判断每个 Pod 和 Node 的每个版本。在控制平面上它从 etcd 读取，因此 API server 停机时也不会漏掉。
[它的测试](../../tests/trust/test_history.py)表明它能发现错误的历史。
""",
        "rules": "## 检查什么",
        "rules_rows": f"""\
- 绑定绝不会使一张卡超出它的大小。卡变小或消失时，绑定仍可使用 Node 在最近 {GRACE_S:g} 秒内显示过的内容，因为 extender 要晚一点才知道。
- 绑定写明的卡数和单位数与 Pod 请求的相同。绑定之后，Pod 的节点和记录不变。
- 没有人删除的 Pod 不会消失。除了创建后立即被删除的，每个 Pod 最终都被绑定。
- 没有故障时，extender 的账、由新的列表得到的账（`accelshare inspect`）、刚启动的 extender 的账与检查器自己的总和都相等。
- 在节点上，每个容器看到它的记录中的卡，没有别的卡；没有卡的 Pod 看不到卡。
""",
        "control": "## 在控制平面上",
        "control_head": "种子|故障|Pod|绑定|看到的版本|同时绑定的最多 Pod|曾经等待的 Pod|有 Pod 放得下却没有绑定的最长时间|最后一个故障之后的同一时间|比较账的次数|重新启动的进程|违规",
        "smaller": "这里有比 `make trust` 默认规模（{faults} 个故障，{pods:,} 个 Pod）小的运行。",
        "waits": """\
一次等待可能跨越几个故障，这里全部列出。一个故障持续到被击中的部分重新应答为止：在繁忙的机器上，被杀死的 API server 需要长达一分钟。
最后一个故障之后剩下的是：被杀死的 extender 进程的启动（空闲的机器上一秒，每个核有十多个进程等待时 10 到 20 秒）、已死持有者的 Lease 的
3 秒，以及接管（不到 1 秒）。
""",
        "kinds": "### 各种故障",
        "kind": "故障",
        "node": "## 在真实节点上",
        "node_head": "交付|种子|故障|有卡的 Pod|与记录比较过的容器|有卡而失败|没有卡而失败|违规",
        "node_words": "使用 device plugin 时，如果 kubelet 在没有插件服务时接纳一个 Pod，它会永久拒绝这个 Pod；这些 Pod 在此计数，不算违规。使用 NRI 时不允许有差别。",
        "none": "这一部分没有运行。",
        "during": "期间的故障：",
        "not_run": "## 没有覆盖什么",
        "not_run_rows": """\
- kube-scheduler、kube-apiserver、etcd、kubelet 和 containerd 的时钟；它们自己的文件所在的磁盘写满（kubelet 的 device id checkpoint 除外）。
- 由 device plugin 交付时的重启：如果插件还没有注册，kubelet 会拒绝重启后找到的 Pod，任何插件都是如此。
- kube-apiserver 与 etcd 之间的连接；kubelet 到 API server 的连接。代之以杀死和暂停它们的进程。
- 多个有真实 kubelet 的 Node、多个 kube-scheduler、抢占、调整大小。
- etcd 的数据丢失：它的进程被杀死，文件仍在。
""",
        "again": "## 再次运行",
    },
}
CHINESE: Final[Mapping[str, str]] = {
    "extender that decides": "做决定的 extender",
    "extender that stands by": "待命的 extender",
    "both extenders": "两个 extender",
    "kube-scheduler to extender": "kube-scheduler 到 extender",
    "kube-scheduler to API server": "kube-scheduler 到 API server",
    "extender to API server": "extender 到 API server",
    "agent to API server": "agent 到 API server",
    "connections cut": "连接被切断",
    "connections stalled": "连接停滞",
    "connections slowed": "连接变慢",
    "answers torn": "应答中断",
    "extender's watches closed": "extender 的 watch 被关闭",
    "extender's watches stalled": "extender 的 watch 停滞",
    "extender's watches": "extender 的 watch",
    "standby's watches stalled, then the other extender killed": "待命者的 watch 停滞，然后杀死另一个 extender",
    "answers to the extender": "给 extender 的应答",
    "bind carried out, its answer lost": "绑定已执行，应答丢失",
    "bind delayed for seconds": "绑定延迟数秒",
    "bind delayed, its extender killed": "绑定延迟，其 extender 被杀死",
    "extender's clock jumped": "extender 的时钟跳变",
    "extenders' Lease": "extender 的 Lease",
    "times of another century": "别的世纪的时间",
    "taken by a stranger": "被陌生者占有",
    "deleted": "被删除",
    "inventory": "inventory",
    "cards removed under pods": "Pod 之下的卡消失",
    "cards shrunk under pods": "Pod 之下的卡变小",
    "cards unhealthy": "卡不健康",
    "garbage": "无效内容",
    "node deleted, created again with other cards": "Node 被删除，带着别的卡重新创建",
    "agent's clock jumped": "agent 的时钟跳变",
    "node": "节点",
    "reboot": "重启",
    "the agent's log": "agent 的日志",
    "the agent's CDI files": "agent 的 CDI 文件",
    "kubelet's checkpoint of device ids": "kubelet 的 device id checkpoint",
    "disk full": "磁盘写满",
    "ConfigMap of unhealthy cards": "不健康卡的 ConfigMap",
}
