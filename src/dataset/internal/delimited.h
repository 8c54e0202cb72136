// Records of fields between delimiters: csv with quotes, tsv without.
//
// If quotes follow RFC 4180, every quote toggles between inside and outside of a field. Then 64
// bytes are judged with a few instructions on bit masks (delimited_blocks.cc). A block with a
// misplaced quote or a NUL is processed byte by byte. Both ways give equal results for well-formed
// text. A quote inside an unquoted field is an ordinary character, and so is text after a closing
// quote. Both make the record malformed, and it ends with its line.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "dataset/internal/masks.h"
#include "dataset/internal/scanner.h"

namespace varda::dataset {

struct Dialect {
  char delimiter = ',';
  char quote = '"';  // '\0': none
};

/// The machine's instructions for blocks of bytes. The choice never changes a result.
struct Instructions {
  FindMasks find_masks = nullptr;
  bool bit_manipulation = false;  // has single instructions to count, find and gather bits

  /// The plain ones first, the fastest last.
  static const std::vector<Instructions>& all();
};

class DelimitedScanner final : public StreamScanner {
 public:
  DelimitedScanner(const Dialect& dialect, const FormatOptions& options,
                   const Instructions& instructions = Instructions::all().back())
      : dialect_(dialect), instructions_(instructions), header_(options.header) {}
  DelimitedScanner(const DelimitedScanner&) = default;

 private:
  // The context of the next byte.
  enum class State : std::uint8_t {
    kFieldStart,
    kPlain,        // in a field without quotes
    kQuoted,       // in a quoted field
    kQuoteSeen,    // after a quote in such a field: its end, or the first half of a quote
    kQuoteSeenCr,  // after that and a carriage return
  };
  enum class Defect : std::uint8_t { kNone, kStrayQuote, kTextBehindQuote, kNul };

  void scan(std::string_view bytes) override;
  Tally finish() override;
  std::unique_ptr<StreamScanner> clone() const override {
    return std::make_unique<DelimitedScanner>(*this);
  }
  Json save_own() const override;
  Status restore_own(const Json& saved) override;

  void step(char c, std::uint64_t at);
  void blocks(std::string_view bytes, std::uint64_t at);
  template <typename Bits>
  void blocks_with(std::string_view bytes, std::uint64_t at);
  void blocks_with_bit_manipulation(std::string_view bytes, std::uint64_t at);
  template <typename Bits>
  std::size_t regular(const Masks* masks, std::size_t count, std::uint64_t at);
  bool block(const Masks& masks, std::uint64_t at);
  void end_record(std::uint64_t at,
                  bool after_cr);  // `at`: position of the line feed, or of the end
  void end_odd_record(std::uint64_t length);
  std::string why_malformed(std::uint64_t length) const;
  bool names_columns() const;

  const Dialect dialect_;
  const Instructions instructions_;
  const Header header_;
  State state_ = State::kFieldStart;
  Defect defect_ = Defect::kNone;   // of this record
  bool last_cr_ = false;            // the previous byte is a carriage return
  bool started_ = false;            // a first byte has been seen
  std::uint64_t record_at_ = 0;     // offset of this record
  std::uint64_t record_line_ = 0;   // line breaks before it
  std::uint64_t lines_ = 0;         // line breaks so far
  std::uint64_t delimiters_ = 0;    // of this record so far
  std::uint64_t expected_ = 0;      // delimiters per record; known after the first record
  std::optional<bool> has_header_;  // known after the first record
  std::string first_;               // the first record while it is read, possibly cut
  Tally tally_;
};

inline void DelimitedScanner::end_record(std::uint64_t at, bool after_cr) {
  const std::uint64_t length = at - record_at_;
  if (length == 0 || (length == 1 && after_cr)) {
    first_.clear();
  } else if (has_header_ && defect_ == Defect::kNone && delimiters_ == expected_ &&
             length <= kRecordBytesMax) {
    ++tally_.samples;
  } else {
    end_odd_record(length);
  }
  record_at_ = at + 1;
  delimiters_ = 0;
  defect_ = Defect::kNone;
}

}  // namespace varda::dataset
