//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/netring/netring/bench/internal/report"
	"github.com/netring/netring/bench/internal/result"
	"github.com/netring/netring/bench/internal/scenario"
)

func reportCommand(args []string) error {
	dir, err := benchDir()
	if err != nil {
		return err
	}
	f := pflag.NewFlagSet("bench report", pflag.ContinueOnError)
	results := f.String("results", filepath.Join(dir, "results"), "folder of the results")
	doc := f.String("doc", filepath.Join(filepath.Dir(dir), "BENCHMARKS.md"), "file whose tables are made anew; - prints all sections")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return errUsage
		}
		return fmt.Errorf("%w; see bench report --help", err)
	}
	sections := map[string]string{}
	var names []string
	var runs []*result.Run
	for _, s := range scenario.All() {
		r, err := result.Load(*results, s.Name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if r != nil {
			runs = append(runs, r)
			if err := report.Draw(&s, r, *results); err != nil {
				return err
			}
		}
		sections[s.Name] = report.Section(&s, r)
		names = append(names, s.Name)
	}
	sections["machine"] = report.Machine(runs)
	if *doc == "-" {
		fmt.Println(sections["machine"])
		for _, n := range names {
			fmt.Println(sections[n])
		}
		return nil
	}
	old, err := os.ReadFile(*doc)
	if err != nil {
		return err
	}
	text, unused, err := report.Update(string(old), sections)
	if err != nil {
		return fmt.Errorf("%s: %w", *doc, err)
	}
	if len(unused) > 0 {
		return fmt.Errorf("%s has no part for %s: add the comment lines \"begin bench NAME\" and \"end bench NAME\"", *doc, strings.Join(unused, ", "))
	}
	return os.WriteFile(*doc, []byte(text), 0o644)
}
