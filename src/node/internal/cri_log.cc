// Format: kubernetes.io/docs/concepts/cluster-administration/logging, and the CRI's design proposal
// on logging.
#include "node/internal/cri_log.h"

#include <algorithm>
#include <utility>

namespace varda::node::internal {
namespace {

// A runtime cuts lines at 16 KiB; much longer lines are not from a runtime.
constexpr std::size_t kLineBytesMax = 1u << 20;

bool is_time(std::string_view text) {
  return text.size() >= 20 && text[4] == '-' && text[7] == '-' && text[10] == 'T' &&
         text[13] == ':' && text[16] == ':';
}

// `line` includes its line break, if any.
std::string_view text_of(std::string_view line, bool& partial) {
  partial = false;
  const std::size_t time = line.find(' ');
  if (time == std::string_view::npos || !is_time(line.substr(0, time))) return line;
  std::string_view after_time = line.substr(time + 1);
  if (!after_time.starts_with("stdout ") && !after_time.starts_with("stderr ")) return line;
  after_time.remove_prefix(7);
  const std::size_t tags = after_time.find(' ');
  if (tags == std::string_view::npos) return line;
  // Tags are separated by ':'; the first marks full and partial lines.
  const std::string_view first = after_time.substr(0, std::min(tags, after_time.find(':')));
  if (first != "F" && first != "P") return line;
  partial = first == "P";
  return after_time.substr(tags + 1);
}

void append(std::string& out, std::string_view line) {
  bool partial = false;
  std::string_view text = text_of(line, partial);
  if (partial && text.ends_with('\n')) text.remove_suffix(1);
  out += text;
}

}  // namespace

std::string CriLog::take(std::string_view piece) {
  std::string out;
  for (std::size_t end = piece.find('\n'); end != std::string_view::npos; end = piece.find('\n')) {
    partial_ += piece.substr(0, end + 1);
    append(out, partial_);
    partial_.clear();
    piece.remove_prefix(end + 1);
  }
  partial_ += piece;
  if (partial_.size() > kLineBytesMax) out += std::exchange(partial_, {});
  return out;
}

std::string CriLog::finish() {
  std::string out;
  append(out, partial_);
  partial_.clear();
  return out;
}

}  // namespace varda::node::internal
