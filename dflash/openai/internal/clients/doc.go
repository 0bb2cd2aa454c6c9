// Package clients has tests only: the official clients of OpenAI (Go, Python,
// JavaScript) and Anthropic (Python) against a server of package openai.
package clients
