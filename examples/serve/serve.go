package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/dflash/openai"
)

// run is the program. It returns the exit status.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(args, stderr)
	if err == nil {
		err = serve(ctx, o, stdout, stderr)
	}
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage), errors.Is(err, dflash.ErrRequest):
		fmt.Fprintf(stderr, "serve: %v\nRun it with -h for its flags.\n", err)
		return 2
	}
	fmt.Fprintf(stderr, "serve: %v\n", err)
	return 1
}

// serve listens, loads the model and answers until the context ends.
func serve(ctx context.Context, o *options, stdout, stderr io.Writer) (err error) {
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: o.level}))
	listener, err := net.Listen("tcp", o.addr)
	if err != nil {
		return err
	}
	front := &front{}
	server := &http.Server{
		Handler: front, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() { err = errors.Join(err, server.Close()) }()
	fmt.Fprintf(stdout, "http://%s\n", listener.Addr())

	o.engine.Logger = log
	o.engine.Hub = &dflash.HubOptions{Progress: downloads(log)}
	model := newBackend(func(ctx context.Context) (*dflash.Engine, error) {
		options := o.engine
		return dflash.Open(ctx, o.model, &options)
	}, o.idle, log)
	defer func() { err = errors.Join(err, model.Close()) }()
	release, err := model.Acquire(ctx)
	switch {
	case ctx.Err() != nil: // told to end while the model was being loaded
		return nil
	case err != nil:
		return err
	}
	release()

	m := newMetrics(model)
	o.api.Logger, o.api.Observe = log, m.observe
	api := openai.NewHandler(model, &o.api)
	m.watch(api)
	mux := http.NewServeMux()
	mux.Handle("/v1/", api)
	mux.Handle("/health", api)
	mux.Handle("/metrics", api.Protect(m.handler()))
	mux.Handle("/", pageHandler())
	if o.pprof {
		profiles := http.NewServeMux()
		profiles.HandleFunc("/debug/pprof/", pprof.Index)
		profiles.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		profiles.HandleFunc("/debug/pprof/profile", pprof.Profile)
		profiles.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		profiles.HandleFunc("/debug/pprof/trace", pprof.Trace)
		mux.Handle("/debug/pprof/", api.Protect(profiles))
	}
	front.ready(mux)
	log.Info("ready", "address", listener.Addr().String())
	if o.api.APIKey == "" && !onlyHere(listener.Addr()) {
		log.Warn("whoever reaches this address may use the model; -api-key asks for a key", "address", listener.Addr().String())
	}

	select {
	case <-ctx.Done():
	case err = <-served:
	}
	log.Info("shutting down", "patience", o.drain.String())
	patience, cancel := context.WithTimeout(context.Background(), o.drain)
	defer cancel()
	if late := api.Shutdown(patience); late != nil {
		log.Warn("requests were ended", "error", late)
	}
	// What is left are answers on their way out.
	last, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if late := server.Shutdown(last); late != nil {
		log.Warn("connections were cut", "error", late)
	}
	return err
}

// onlyHere says whether no other machine can reach the address.
func onlyHere(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return !ok || tcp.IP.IsLoopback()
}

// front answers 503 until what it stands for is ready.
type front struct {
	next atomic.Pointer[http.ServeMux]
}

func (f *front) ready(next *http.ServeMux) { f.next.Store(next) }

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if next := f.next.Load(); next != nil {
		next.ServeHTTP(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Retry-After", "5")
	w.WriteHeader(http.StatusServiceUnavailable)
	io.WriteString(w, `{"error":{"message":"The model is being loaded.","type":"service_unavailable","param":null,"code":"loading"}}`)
}
