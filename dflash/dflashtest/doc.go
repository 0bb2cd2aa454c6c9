// Package dflashtest has a stand-in for *dflash.Engine, for tests of programs
// that use one. It plays scripts: tokens with their text, delays, errors and
// gates that a test opens, and needs no model and no native library.
//
//	engine := &dflashtest.Engine{Script: dflashtest.Always(dflashtest.Content("Hello", " world")...)}
//
// Programs that take the methods they need as an interface, as package openai
// does, can be given either.
package dflashtest
