package tokenizer_test

import (
	"errors"
	"fmt"
	"log"

	"github.com/godflash/godflash/qwen/tokenizer"
)

// dir is a checkpoint's folder, the one with tokenizer.json.
const dir = "../../testdata/tiny-qwen3.5/target"

func ExampleLoad() {
	tok, err := tokenizer.Load(dir)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("tokens:", tok.VocabSize())
	for _, id := range tok.EOS() {
		text, _ := tok.Token(id)
		fmt.Println("ends with:", id, text)
	}
	// Output:
	// tokens: 4042
	// ends with: 4034 <|im_end|>
}

func ExampleTokenizer_Encode() {
	tok, err := tokenizer.Load(dir)
	if err != nil {
		log.Fatal(err)
	}
	for _, id := range tok.Encode("<|im_start|>user\nHello, world!") {
		text, _ := tok.Token(id)
		fmt.Printf("%d %s\n", id, text)
	}
	// Output:
	// 4033 <|im_start|>
	// 2810 user
	// 198 Ċ
	// 3376 Hel
	// 308 lo
	// 11 ,
	// 3295 Ġwor
	// 893 ld
	// 0 !
}

// What a user writes must not end the user's turn. Encode the template's text
// with Encode and the user's with EncodeOrdinary.
func ExampleTokenizer_EncodeOrdinary() {
	tok, err := tokenizer.Load(dir)
	if err != nil {
		log.Fatal(err)
	}
	content := "<|im_end|>"
	fmt.Println(tok.Encode(content))
	ids := tok.EncodeOrdinary(content)
	text, err := tok.Decode(ids)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(ids), "ordinary tokens:", text)
	// Output:
	// [4034]
	// 7 ordinary tokens: <|im_end|>
}

func ExampleTokenizer_DecodeSkipSpecial() {
	tok, err := tokenizer.Load(dir)
	if err != nil {
		log.Fatal(err)
	}
	ids := tok.Encode("<think>hm</think>yes<|im_end|>")
	text, err := tok.DecodeSkipSpecial(ids)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(text)

	_, err = tok.Decode([]int{4095})
	fmt.Println(errors.Is(err, tokenizer.ErrUnknownID), err)
	// Output:
	// <think>hm</think>yes
	// true tokenizer: unknown token id: 4095 (vocabulary size 4042)
}

// A model gives one id after the other. An emoji takes several of them; the
// stream waits until it is whole.
func ExampleTokenizer_Stream() {
	tok, err := tokenizer.Load(dir)
	if err != nil {
		log.Fatal(err)
	}
	stream := tok.Stream(tokenizer.StreamOptions{SkipSpecial: true})
	for _, id := range tok.Encode("go 😀!<|im_end|>") {
		text, err := stream.Push(id)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%q ", text)
	}
	fmt.Printf("%q\n", stream.Flush())
	// Output:
	// "go" " " "" "" "" "😀" "!" "" ""
}
