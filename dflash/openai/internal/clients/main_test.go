package clients

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	client "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/godflash/godflash/dflash"
	"github.com/godflash/godflash/dflash/openai"
	"github.com/godflash/godflash/mlx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type object = map[string]any

// world is a server over a backend.
type world struct {
	*httptest.Server
	handler *openai.Handler
	client  *http.Client
}

func serve(t testing.TB, backend openai.Backend, o openai.Options) *world {
	t.Helper()
	handler := openai.NewHandler(backend, &o)
	server := httptest.NewServer(handler)
	w := &world{server, handler, &http.Client{Transport: &http.Transport{}}}
	t.Cleanup(func() {
		w.client.CloseIdleConnections()
		require.NoError(t, handler.Close())
		server.Close()
	})
	return w
}

// real serves the tiny pair.
func real(t testing.TB, o openai.Options) (*world, *dflash.Engine) {
	t.Helper()
	engine, err := dflash.Open(t.Context(), "../../../../testdata/tiny-qwen3.5", &dflash.Options{MLX: &mlx.Options{Device: mlx.DeviceCPU}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, engine.Close()) })
	return serve(t, engine, o), engine
}

func goClient(w *world) client.Client {
	return client.NewClient(option.WithBaseURL(w.URL+"/v1"), option.WithAPIKey("none"), option.WithMaxRetries(0), option.WithHTTPClient(w.client))
}

// eventually waits until something holds that another goroutine brings about.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	require.Eventually(t, f, 20*time.Second, time.Millisecond, what)
}
