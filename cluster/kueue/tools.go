//go:build tools

// Package tools names the programs we build, so that go.mod and go.sum pin all they need. It is never compiled itself.
package tools

import (
	_ "sigs.k8s.io/jobset"
	_ "sigs.k8s.io/kueue/cmd/kueue"
)
