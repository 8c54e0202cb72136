// Base of formats with one record per line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "dataset/internal/scanner.h"

namespace varda::dataset {

/// Splits bytes into lines and keeps the tally; the format judges each line. The last line needs no
/// line break.
class LineScanner : public StreamScanner {
 protected:
  LineScanner() = default;
  LineScanner(const LineScanner&) = default;

  /// A piece of the current line, without its line break; `at`: the offset of its first byte.
  virtual void piece(std::string_view bytes, std::uint64_t at) = 0;
  enum class Verdict { kSample, kNone, kMalformed };
  struct Judged {
    Verdict verdict = Verdict::kNone;
    std::string why;  // for kMalformed
  };
  /// The line has ended; the next piece belongs to another line. Records longer than
  /// kRecordBytesMax are malformed whatever this returns.
  virtual Judged end_line() = 0;
  virtual Json save_line() const = 0;
  virtual Status restore_line(const Json& saved) = 0;
  /// Offset of the current line.
  std::uint64_t line_at() const { return line_at_; }

 private:
  void scan(std::string_view bytes) final;
  Tally finish() final;
  Json save_own() const final;
  Status restore_own(const Json& saved) final;
  void judge(std::uint64_t end);

  Tally tally_;
  bool started_ = false;
  std::uint64_t line_at_ = 0;
  std::uint64_t lines_ = 0;  // line breaks so far
};

}  // namespace varda::dataset
