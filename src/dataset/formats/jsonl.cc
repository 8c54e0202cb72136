// jsonl: one JSON text per line. https://jsonlines.org
#include "dataset/json_stream.h"
#include "dataset/internal/line_scanner.h"

namespace varda::dataset {
namespace {

class JsonlScanner final : public LineScanner {
 public:
  JsonlScanner() = default;
  JsonlScanner(const JsonlScanner&) = default;

 private:
  void piece(std::string_view bytes, std::uint64_t at) override {
    text_.feed(bytes, at, listener_);
  }

  Judged end_line() override {
    Judged judged;
    const bool whole = text_.end(listener_);
    if (whole) {
      judged.verdict = Verdict::kSample;
    } else if (!text_.blank() || !text_.error().empty()) {
      judged.verdict = Verdict::kMalformed;
      judged.why = text_.error().empty()
                       ? "the JSON text is incomplete"
                       : text_.error() + " (at byte " +
                             std::to_string(text_.error_at() - line_at()) + " of the line)";
    }
    text_.restart();
    return judged;
  }

  std::unique_ptr<StreamScanner> clone() const override {
    return std::make_unique<JsonlScanner>(*this);
  }
  Json save_line() const override { return text_.save(); }
  Status restore_line(const Json& saved) override { return text_.restore(saved); }

  JsonStream text_;
  JsonStream::Listener listener_;  // ignores everything
};

}  // namespace

extern const Format kJsonl;
const Format kJsonl{.name = "jsonl",
                    .sample = "a line that is a JSON text",
                    .extension = ".jsonl",
                    .stream = [](const FormatOptions&) -> std::unique_ptr<StreamScanner> {
                      return std::make_unique<JsonlScanner>();
                    }};

}  // namespace varda::dataset
