// Package tokenizer turns text into token ids and back exactly as a Qwen
// checkpoint's tokenizer.json says.
//
// It reads the file format of Hugging Face's tokenizers library and reproduces
// that library's results for the family's arrangement: added tokens are cut out
// of the raw text, what lies between them is brought to NFC, split by the
// family's regular expression, written in the byte-level alphabet and merged by
// byte pair encoding. [Tokenizer.Decode] and [Stream] go the other way; the
// stream never hands out half a letter.
//
// The package is not a general tokenizer. A file that asks for anything else
// (another model type, normalizer, pre-tokenizer, pattern, decoder, dropout,
// unknown tokens, stripping added tokens) is refused with [ErrUnsupported]
// rather than read approximately, because ids that are nearly right look like a
// bad model. Settings that act on batches only (truncation, padding) and the
// post-processor ByteLevel, which moves offsets only, have no effect here.
//
// Time is linear in the length of the text, but for the merging of one very long
// word, which takes n log n steps, and the search for added tokens, which takes
// at most the length of the longest one at each place where one could begin.
//
// Ids were compared with tokenizers 0.23.3 (Python): the golden files of the
// test data, every code point of Unicode in several surroundings, and the real
// vocabularies of Qwen3 and Qwen3.6.
package tokenizer
