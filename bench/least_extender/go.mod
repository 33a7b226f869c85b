// A program of the benchmark, in the language of kube-scheduler. It has no dependencies.
module accelshare/bench/least_extender

go 1.26.0
