"""Promises: plans pending pods ahead of kube-scheduler and nominates a node for each, which kube-scheduler tries first.

Belongs here: which pods are planned, the rules of kube-scheduler that are checked ahead, the plan, writing nominations, how long
filter waits for them, counting what became of them. Never: binding, holding cards, answering kube-scheduler. A promise is soft: a
wrong one costs kube-scheduler a second search and nothing else.

    plan_feed     nodes and pods as kube-scheduler's rules see them, from the watches of the feed
    rules         pure functions: may this pod be on that node, and does it fit there beside the others?
    node_usage    what the pods of each node, bound and promised, take of CPU, memory, ports and the rest
    pending_pods  the pods that wait, in kube-scheduler's order
    plan          which pod gets which node next, and what became of each promise
    unseen        nominations on their way: how many there may be
    nominator     writes status.nominatedNodeName, a bounded number at once
    scheduler_lag how far kube-scheduler's watch is behind ours
    wait_credit   what promises have saved, and what filter has waited for them
    filter_wait   lets filter wait for the nominations of the next pods
"""
