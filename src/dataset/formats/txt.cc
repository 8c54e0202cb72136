// txt: lines, as in a list of images.
#include <cstring>

#include "dataset/internal/scanner.h"

namespace varda::dataset {
namespace {

class TxtScanner final : public StreamScanner {
 public:
  TxtScanner() = default;
  TxtScanner(const TxtScanner&) = default;

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
      const std::string_view part = bytes.substr(0, size);
      if (!filled_) filled_ = part.find_first_not_of(" \t\r\v\f") != std::string_view::npos;
      if (!nul_) nul_ = part.find('\0') != std::string_view::npos;
      at += size;
      bytes.remove_prefix(size);
      if (feed == nullptr) return;
      end_line(at);
      line_at_ = ++at;
      ++lines_;
      bytes.remove_prefix(1);
    }
  }

  void end_line(std::uint64_t at) {
    if (filled_) {
      if (nul_) {
        add_malformed(tally_, {"", lines_ + 1, line_at_, "a NUL byte: no text"});
      } else if (at - line_at_ > kRecordBytesMax) {
        add_malformed(tally_, {"", lines_ + 1, line_at_, "longer than " + std::to_string(kRecordBytesMax >> 20) + " MiB"});
      } else {
        ++tally_.samples;
      }
    }
    filled_ = nul_ = false;
  }

  Tally finish() override {
    end_line(offset());
    return tally_;
  }
  std::unique_ptr<StreamScanner> clone() const override { return std::make_unique<TxtScanner>(*this); }
  Json save_own() const override {
    return Json::object({{"tally", save_tally(tally_)},
                         {"started", started_ ? 1 : 0},
                         {"filled", filled_ ? 1 : 0},
                         {"nul", nul_ ? 1 : 0},
                         {"lineAt", line_at_},
                         {"lines", lines_}});
  }
  Status restore_own(const Json& saved) override {
    Saved in(saved);
    TRY(tally_, restore_tally(saved["tally"]));
    started_ = in.flag("started");
    filled_ = in.flag("filled");
    nul_ = in.flag("nul");
    line_at_ = in.number("lineAt");
    lines_ = in.number("lines");
    return in.status();
  }

  Tally tally_;
  bool started_ = false;
  bool filled_ = false, nul_ = false;  // of this line so far
  std::uint64_t line_at_ = 0;
  std::uint64_t lines_ = 0;  // line breaks so far
};

}  // namespace

extern const Format kTxt;
const Format kTxt{.name = "txt",
                  .sample = "a line that holds more than blanks",
                  .stream = [](const FormatOptions&) -> std::unique_ptr<StreamScanner> { return std::make_unique<TxtScanner>(); }};

}  // namespace varda::dataset
