//go:build tools

// Package tools names the program we build, so that go.mod and go.sum pin all it needs. It is never compiled itself.
package tools

import _ "sigs.k8s.io/scheduler-plugins/cmd/scheduler"
