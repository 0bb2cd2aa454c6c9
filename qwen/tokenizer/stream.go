package tokenizer

// StreamOptions configures a [Stream]. The zero value keeps special tokens.
type StreamOptions struct {
	// SkipSpecial leaves out special tokens, as DecodeSkipSpecial does.
	SkipSpecial bool
}

// A Stream decodes ids one by one. The results of its Push calls and the final
// Flush, joined, are what Decode (or DecodeSkipSpecial) gives for all the ids.
// A Stream is for one goroutine at a time.
type Stream struct {
	tokenizer   *Tokenizer
	skipSpecial bool
	held        [3]byte // the first bytes of an unfinished character
	n           int
}

// Stream starts decoding a sequence of ids.
func (t *Tokenizer) Stream(opts StreamOptions) *Stream {
	return &Stream{tokenizer: t, skipSpecial: opts.SkipSpecial}
}

// Clone is a stream that goes on from here by itself, so that ids can be tried.
func (s *Stream) Clone() *Stream {
	c := *s
	return &c
}

// Push takes the next id and gives the text that is certain now: whole
// characters only, so it may be empty. At most 3 bytes stay behind. An unknown
// id is an error that wraps [ErrUnknownID] and leaves the stream as it was.
func (s *Stream) Push(id int) (string, error) {
	piece, special, err := s.tokenizer.piece(id)
	if err != nil {
		return "", err
	}
	if special && s.skipSpecial {
		return "", nil
	}
	if s.n > 0 {
		piece = string(s.held[:s.n]) + piece
	}
	text, rest := toValid(piece)
	s.n = copy(s.held[:], rest)
	return text, nil
}

// Flush ends the sequence: an unfinished character comes out as U+FFFD. The
// stream is then ready for another sequence.
func (s *Stream) Flush() string {
	if s.n == 0 {
		return ""
	}
	s.n = 0
	return replacement
}
