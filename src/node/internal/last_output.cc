#include "node/internal/last_output.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "node/internal/cri_log.h"

namespace varda::node::internal {
namespace {

constexpr std::uint64_t kBytesMax = 2048;
constexpr std::uint64_t kRuntimePrefixes = 16u << 10;  // room for a runtime's prefixes in that many
                                                       // bytes of not very short lines
constexpr int kLinesMax = 80;

// Length of the UTF-8 sequence at the start of `text` (RFC 3629: no overlong forms, no surrogates,
// up to U+10FFFF); 0: invalid.
std::size_t sequence(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xC2 && first < 0xE0   ? 2
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xF0 && first < 0xF5 ? 4
                                                             : 0;
  const unsigned least = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned most = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (length == 0 || byte(1) < least || byte(1) > most) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return length;
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = sequence(text);
    if (length == 0) {
      out += '?';
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

Result<std::string> read_up_to(os::File& file, std::uint64_t bytes) {
  std::string text;
  while (text.size() < bytes) {
    TRY(const std::string piece, file.read(bytes - text.size()));
    if (piece.empty()) break;
    text += piece;
  }
  return text;
}

// The cut rarely falls between two lines.
void drop_first_line(std::string& text) {
  const std::size_t line = text.find('\n');
  if (line != std::string::npos && line + 1 < text.size()) text.erase(0, line + 1);
}

Result<std::string> end_of(os::FileSystem& fs, const os::Path& log, LogFormat format) {
  TRY(const auto file, fs.open(log, os::Open::kRead));
  TRY(const std::uint64_t size, file->size());
  const std::uint64_t wanted = format == LogFormat::kCri ? kBytesMax + kRuntimePrefixes : kBytesMax;
  const std::uint64_t from = size > wanted ? size - wanted : 0;
  TRY_VOID(file->seek(from));
  TRY(std::string text, read_up_to(*file, wanted));
  if (from > 0) drop_first_line(text);
  if (format == LogFormat::kRaw) return text;
  CriLog lines;
  text = lines.take(text) + lines.finish();
  if (text.size() <= kBytesMax) return text;
  text.erase(0, text.size() - kBytesMax);
  drop_first_line(text);
  return text;
}

}  // namespace

std::string last_output(os::FileSystem& fs, const os::Path& log, LogFormat format) {
  const Result<std::string> end = end_of(fs, log, format);
  if (!end.ok()) return "";
  std::string_view text = *end;
  std::size_t start = text.size();
  for (int lines = 0; start > 0; --start) {
    if (text[start - 1] == '\n' && start != text.size() && ++lines == kLinesMax) break;
  }
  return printable(text.substr(start));
}

std::string file_fields(os::FileSystem& fs, const os::Path& file, std::size_t bytes_max) {
  const auto opened = fs.open(file, os::Open::kRead);
  if (!opened.ok()) return "";
  const Result<std::string> text = read_up_to(**opened, bytes_max);
  return text.ok() ? printable(*text) : "";
}

}  // namespace varda::node::internal
