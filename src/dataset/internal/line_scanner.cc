#include "dataset/internal/line_scanner.h"

#include <cstring>

namespace varda::dataset {

void LineScanner::scan(std::string_view bytes) {
  std::uint64_t at = offset();
  if (!started_) {
    started_ = true;
    line_at_ = at;
  }
  while (!bytes.empty()) {
    const auto* feed = static_cast<const char*>(std::memchr(bytes.data(), '\n', bytes.size()));
    const std::size_t size =
        feed == nullptr ? bytes.size() : static_cast<std::size_t>(feed - bytes.data());
    piece(bytes.substr(0, size), at);
    at += size;
    bytes.remove_prefix(size);
    if (feed == nullptr) return;
    judge(at);
    line_at_ = ++at;
    ++lines_;
    bytes.remove_prefix(1);
  }
}

void LineScanner::judge(std::uint64_t end) {
  Judged judged = end_line();
  if (judged.verdict == Verdict::kNone) return;
  if (end - line_at_ > kRecordBytesMax) {
    judged = {Verdict::kMalformed, "longer than " + std::to_string(kRecordBytesMax >> 20) + " MiB"};
  }
  if (judged.verdict == Verdict::kSample) {
    ++tally_.samples;
  } else {
    add_malformed(tally_, {"", lines_ + 1, line_at_, std::move(judged.why)});
  }
}

Tally LineScanner::finish() {
  judge(offset());
  return tally_;
}

Json LineScanner::save_own() const {
  return Json::object({{"tally", save_tally(tally_)},
                       {"started", started_ ? 1 : 0},
                       {"lineAt", line_at_},
                       {"lines", lines_},
                       {"line", save_line()}});
}

Status LineScanner::restore_own(const Json& saved) {
  Saved in(saved);
  TRY(tally_, restore_tally(saved["tally"]));
  started_ = in.flag("started");
  line_at_ = in.number("lineAt");
  lines_ = in.number("lines");
  TRY_VOID(restore_line(saved["line"]));
  return in.status();
}

}  // namespace varda::dataset
