package main

import (
	"fmt"
	"net/http"

	"github.com/godflash/godflash/dflash/openai"
)

// pageHandler answers what is not the API: at / it says what there is. It is
// not behind the key.
func pageHandler(*openai.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprint(w, "godflash\n\nPOST /v1/chat/completions\nPOST /v1/completions\nPOST /v1/responses\nPOST /v1/messages\nGET  /v1/models\nGET  /health\nGET  /metrics\n")
	})
}
