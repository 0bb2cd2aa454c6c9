package tokenizer

import "encoding/json"

// config is the part of tokenizer_config.json and special_tokens_map.json that
// concerns ids.
type config struct {
	EOS                tokenName             `json:"eos_token"`
	BOS                tokenName             `json:"bos_token"`
	Pad                tokenName             `json:"pad_token"`
	AddPrefixSpace     bool                  `json:"add_prefix_space"`
	SplitSpecialTokens bool                  `json:"split_special_tokens"`
	AddedTokensDecoder map[string]addedToken `json:"added_tokens_decoder"`
}

// tokenName is a token's text: a string, an object with the text in "content",
// or null, which is "".
type tokenName string

func (n *tokenName) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil { // null leaves it empty
		*n = tokenName(text)
		return nil
	}
	var object struct {
		Content *string `json:"content"`
	}
	if err := json.Unmarshal(data, &object); err != nil || object.Content == nil {
		return malformed("a token is named by %.80s, which is neither a text nor an object with content", data)
	}
	*n = tokenName(*object.Content)
	return nil
}

// parseConfig reads a file of settings; no data gives empty settings.
func parseConfig(data []byte) (*config, error) {
	c := new(config)
	if len(data) == 0 {
		return c, nil
	}
	if err := json.Unmarshal(data, c); err != nil {
		return nil, asMalformed(err)
	}
	if c.AddPrefixSpace {
		return nil, unsupported("add_prefix_space")
	}
	if c.SplitSpecialTokens {
		return nil, unsupported("split_special_tokens; EncodeOrdinary leaves them unrecognised")
	}
	return c, nil
}
