//go:build tools

// Package tools names the programs we build, so that go.mod and go.sum pin all they need. It is never compiled itself.
package tools

import (
	_ "helm.sh/helm/v3/cmd/helm"
)
