// jsonl: a JSON text a line. https://jsonlines.org
#include <cstring>

#include "dataset/internal/json_stream.h"
#include "dataset/internal/scanner.h"

namespace varda::dataset {
namespace {

class JsonlScanner final : public StreamScanner {
 public:
  JsonlScanner() = default;
  JsonlScanner(const JsonlScanner&) = default;

 private:
  void scan(std::string_view bytes) override {
    std::uint64_t at = offset();
    if (!started_) {
      started_ = true;
      line_at_ = at;
    }
    while (!bytes.empty()) {
      const auto* feed = static_cast<const char*>(std::memchr(bytes.data(), '\n', bytes.size()));
      const std::size_t size = feed == nullptr ? bytes.size() : static_cast<std::size_t>(feed - bytes.data());
      text_.feed(bytes.substr(0, size), at, listener_);
      at += size;
      bytes.remove_prefix(size);
      if (feed == nullptr) return;
      end_line(at);
      text_.restart();
      line_at_ = ++at;
      ++lines_;
      bytes.remove_prefix(1);
    }
  }

  void end_line(std::uint64_t at) {
    const bool whole = text_.end(listener_);
    if (text_.blank() && text_.error().empty()) return;
    if (at - line_at_ > kRecordBytesMax) {
      add_malformed(tally_, {"", lines_ + 1, line_at_, "longer than " + std::to_string(kRecordBytesMax >> 20) + " MiB"});
    } else if (whole) {
      ++tally_.samples;
    } else {
      const std::string why = text_.error().empty()
                                  ? "the JSON text is not whole"
                                  : text_.error() + " (at byte " + std::to_string(text_.error_at() - line_at_) + " of the line)";
      add_malformed(tally_, {"", lines_ + 1, line_at_, why});
    }
  }

  Tally finish() override {
    end_line(offset());
    return tally_;
  }
  std::unique_ptr<StreamScanner> clone() const override { return std::make_unique<JsonlScanner>(*this); }
  Json save_own() const override {
    return Json::object({{"tally", save_tally(tally_)},
                         {"started", started_ ? 1 : 0},
                         {"lineAt", line_at_},
                         {"lines", lines_},
                         {"text", text_.save()}});
  }
  Status restore_own(const Json& saved) override {
    Saved in(saved);
    TRY(tally_, restore_tally(saved["tally"]));
    started_ = in.flag("started");
    line_at_ = in.number("lineAt");
    lines_ = in.number("lines");
    TRY_VOID(text_.restore(saved["text"]));
    return in.status();
  }

  Tally tally_;
  bool started_ = false;
  std::uint64_t line_at_ = 0;
  std::uint64_t lines_ = 0;  // line breaks so far
  JsonStream text_;
  JsonStream::Listener listener_;  // nobody listens
};

}  // namespace

extern const Format kJsonl;
const Format kJsonl{
    .name = "jsonl", .sample = "a line that is a JSON text", .stream = [](const FormatOptions&) -> std::unique_ptr<StreamScanner> {
      return std::make_unique<JsonlScanner>();
    }};

}  // namespace varda::dataset
