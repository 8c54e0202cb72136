// txt: lines, as in a list of images.
#include "dataset/internal/line_scanner.h"

namespace varda::dataset {
namespace {

class TxtScanner final : public LineScanner {
 public:
  TxtScanner() = default;
  TxtScanner(const TxtScanner&) = default;

 private:
  void piece(std::string_view bytes, std::uint64_t /*at*/) override {
    if (!filled_) filled_ = bytes.find_first_not_of(" \t\r\v\f") != std::string_view::npos;
    if (!nul_) nul_ = bytes.find('\0') != std::string_view::npos;
  }

  Judged end_line() override {
    Judged judged;
    if (filled_)
      judged = nul_ ? Judged{Verdict::kMalformed, "a NUL byte"} : Judged{Verdict::kSample, ""};
    filled_ = nul_ = false;
    return judged;
  }

  std::unique_ptr<StreamScanner> clone() const override {
    return std::make_unique<TxtScanner>(*this);
  }
  Json save_line() const override {
    return Json::object({{"filled", filled_ ? 1 : 0}, {"nul", nul_ ? 1 : 0}});
  }
  Status restore_line(const Json& saved) override {
    Saved in(saved);
    filled_ = in.flag("filled");
    nul_ = in.flag("nul");
    return in.status();
  }

  bool filled_ = false, nul_ = false;  // of this line so far
};

}  // namespace

extern const Format kTxt;
const Format kTxt{.name = "txt",
                  .sample = "a line that holds more than blanks",
                  .extension = ".txt",
                  .stream = [](const FormatOptions&) -> std::unique_ptr<StreamScanner> {
                    return std::make_unique<TxtScanner>();
                  }};

}  // namespace varda::dataset
