package clients

import (
	"context"
	"errors"
	"slices"
	"testing"

	client "github.com/openai/openai-go/v3"
	"github.com/stretchr/testify/require"

	"github.com/godflash/godflash/dflash/dflashtest"
	"github.com/godflash/godflash/dflash/openai"
)

// The official Go client reads what the handler writes.
func TestGoClientFake(t *testing.T) {
	steps := slices.Concat(dflashtest.Content("One ", "moment."), dflashtest.Call(0, "get_weather", `{"city":`, ` "Bern"}`), dflashtest.Call(1, "get_weather", `{"city": "Basel"}`))
	w := serve(t, &dflashtest.Engine{Script: dflashtest.Always(steps...)}, openai.Options{})
	api := goClient(w)
	request := client.ChatCompletionNewParams{
		Model:    "default",
		Messages: []client.ChatCompletionMessageParamUnion{client.UserMessage("hi")},
		Tools: []client.ChatCompletionToolUnionParam{client.ChatCompletionFunctionTool(client.FunctionDefinitionParam{
			Name: "get_weather", Parameters: client.FunctionParameters{"type": "object"},
		})},
		StreamOptions: client.ChatCompletionStreamOptionsParam{},
	}
	whole, err := api.Chat.Completions.New(t.Context(), request)
	require.NoError(t, err)
	require.Equal(t, "One moment.", whole.Choices[0].Message.Content)
	require.Equal(t, "tool_calls", whole.Choices[0].FinishReason)

	request.StreamOptions.IncludeUsage = client.Bool(true)
	stream := api.Chat.Completions.NewStreaming(t.Context(), request)
	var all client.ChatCompletionAccumulator
	for stream.Next() {
		require.True(t, all.AddChunk(stream.Current()))
	}
	require.NoError(t, stream.Err())
	require.Equal(t, whole.Usage.TotalTokens, all.Usage.TotalTokens)
	require.Equal(t, whole.Choices[0].Message.Content, all.Choices[0].Message.Content)
	require.Len(t, all.Choices[0].Message.ToolCalls, 2)
	for i, call := range whole.Choices[0].Message.ToolCalls {
		require.Equal(t, call.Function.Arguments, all.Choices[0].Message.ToolCalls[i].Function.Arguments)
		require.Equal(t, call.Function.Name, all.Choices[0].Message.ToolCalls[i].Function.Name)
	}

	_, err = api.Chat.Completions.New(t.Context(), client.ChatCompletionNewParams{Model: "other", Messages: request.Messages})
	var failure *client.Error
	require.ErrorAs(t, err, &failure)
	require.Equal(t, 404, failure.StatusCode)
	require.Equal(t, "model_not_found", failure.Code)

	models, err := api.Models.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, "default", models.Data[0].ID)
}

func TestGoClientCancel(t *testing.T) {
	gate := make(chan struct{})
	steps := dflashtest.Content("a", "b")
	steps[1].Gate = gate
	engine := &dflashtest.Engine{Script: dflashtest.Always(steps...)}
	w := serve(t, engine, openai.Options{})
	api := goClient(w)
	ctx, cancel := context.WithCancel(t.Context())
	stream := api.Chat.Completions.NewStreaming(ctx, client.ChatCompletionNewParams{Model: "default", Messages: []client.ChatCompletionMessageParamUnion{client.UserMessage("hi")}})
	require.True(t, stream.Next())
	cancel()
	for stream.Next() {
	}
	require.True(t, errors.Is(stream.Err(), context.Canceled))
	require.NoError(t, stream.Close())
	eventually(t, "the generation ends", func() bool { return engine.Running() == 0 })
}
