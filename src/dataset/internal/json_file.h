// Base of formats with one JSON text per file.
#pragma once

#include "dataset/json_stream.h"
#include "dataset/internal/scanner.h"

namespace varda::dataset {

/// After an error, the start of the next value is unknown. Earlier samples stay counted, and the
/// tally is marked inexact. The same holds for a file without its end.
class JsonFileScanner : public StreamScanner, protected JsonStream::Listener {
 protected:
  explicit JsonFileScanner(std::size_t text_depth) : text_(text_depth) {}
  JsonFileScanner(const JsonFileScanner&) = default;

  /// The file is JSON, but not as the format requires.
  void wrong_file(std::string why, std::uint64_t at, std::uint64_t line) {
    if (!wrong_.empty()) return;
    wrong_ = why;
    add_malformed(tally_, {"", line + 1, at, std::move(why)});
  }
  bool is_wrong_file() const { return !wrong_.empty(); }
  /// Called when the text is complete.
  virtual void complete() {}

  Json save_own() const override;
  Status restore_own(const Json& saved) override;

  Tally tally_;

 private:
  void scan(std::string_view bytes) final { text_.feed(bytes, offset(), *this); }
  Tally finish() final;

  JsonStream text_;
  std::string wrong_;
};

}  // namespace varda::dataset
