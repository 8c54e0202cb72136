// What formats have in common whose file is one JSON text.
#pragma once

#include "dataset/internal/json_stream.h"
#include "dataset/internal/scanner.h"

namespace varda::dataset {

/// Behind an error there is no telling where the next value begins: what was counted before it stays, and the count says that it is
/// not all. So does that of a file whose end is still missing.
class JsonFileScanner : public StreamScanner, protected JsonStream::Listener {
 protected:
  explicit JsonFileScanner(std::size_t text_depth) : text_(text_depth) {}
  JsonFileScanner(const JsonFileScanner&) = default;

  /// The file is JSON, and not what the format asks for.
  void wrong_file(std::string why, std::uint64_t at, std::uint64_t line) {
    if (!wrong_.empty()) return;
    wrong_ = why;
    add_malformed(tally_, {"", line + 1, at, std::move(why)});
  }
  bool is_wrong_file() const { return !wrong_.empty(); }
  /// The text is whole: last words.
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
