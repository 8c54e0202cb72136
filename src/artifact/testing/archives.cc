#include "artifact/testing/archives.h"

#include <algorithm>
#include <cstdio>

namespace varda::artifact::testing {

TarBuilder& TarBuilder::entry(char type, std::string_view path, std::string_view bytes,
                              std::string_view link, std::uint32_t mode) {
  std::string header(512, '\0');
  const auto put = [&header](std::size_t at, std::string_view text, std::size_t max) {
    header.replace(at, std::min(text.size(), max), text.substr(0, max));
  };
  const auto octal = [&put](std::size_t at, std::uint64_t value, int digits) {
    char text[24];
    std::snprintf(text, sizeof text, "%0*llo", digits, static_cast<unsigned long long>(value));
    put(at, text, static_cast<std::size_t>(digits));
  };
  put(0, path, 100);
  octal(100, mode, 7);
  octal(108, 0, 7);
  octal(116, 0, 7);
  octal(124, bytes.size(), 11);
  octal(136, 0, 11);
  header[156] = type;
  put(157, link, 100);
  put(257,
      std::string_view("ustar\0"
                       "00",
                       8),
      8);
  header.replace(148, 8, 8, ' ');
  std::uint32_t sum = 0;
  for (const unsigned char c : header) sum += c;
  octal(148, sum, 6);
  header[154] = '\0';
  bytes_ += header;
  bytes_ += bytes;
  bytes_.resize((bytes_.size() + 511) / 512 * 512, '\0');
  return *this;
}

std::string tar_gzip_of(std::string_view path, std::uint64_t zeros) {
  std::string out;
  auto writer =
      codec::ArchiveWriter::create(codec::ArchiveFormat::kTarGzip, [&out](std::string_view bytes) {
        out += bytes;
        return ok_status();
      });
  CHECK(writer.ok());
  CHECK((*writer)
            ->add({.path = std::string(path),
                   .kind = codec::EntryKind::kFile,
                   .size_bytes = zeros,
                   .mode = 0644,
                   .link_target = ""})
            .ok());
  const std::string block(1 << 20, '\0');
  for (std::uint64_t left = zeros; left > 0;) {
    const std::uint64_t part = std::min<std::uint64_t>(left, block.size());
    CHECK((*writer)->write(std::string_view(block).substr(0, part)).ok());
    left -= part;
  }
  CHECK((*writer)->finish().ok());
  return out;
}

std::string model_archive(std::string_view content) {
  return TarBuilder()
      .directory("model/")
      .file("model/model.onnx", content)
      .file("model/labels.txt", "0\n1\n")
      .tar();
}

}  // namespace varda::artifact::testing
