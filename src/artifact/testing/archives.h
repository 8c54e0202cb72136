// Makes archives at run time, including ones that no honest tool writes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "codec/archive.h"
#include "codec/digest.h"

namespace varda::artifact::testing {

/// Raw ustar entries, byte by byte, so that hostile names and kinds get through.
class TarBuilder {
 public:
  TarBuilder& file(std::string_view path, std::string_view bytes = "x", std::uint32_t mode = 0644) {
    return entry('0', path, bytes, "", mode);
  }
  TarBuilder& directory(std::string_view path) { return entry('5', path, "", "", 0755); }
  TarBuilder& symlink(std::string_view path, std::string_view target) {
    return entry('2', path, "", target, 0777);
  }
  TarBuilder& hard_link(std::string_view path, std::string_view target) {
    return entry('1', path, "", target, 0644);
  }
  TarBuilder& device(std::string_view path) { return entry('3', path, "", "", 0666); }
  TarBuilder& fifo(std::string_view path) { return entry('6', path, "", "", 0666); }
  TarBuilder& entry(char type, std::string_view path, std::string_view bytes, std::string_view link,
                    std::uint32_t mode);
  /// Appends the two zero blocks at the end.
  std::string tar() const { return bytes_ + std::string(1024, '\0'); }

 private:
  std::string bytes_;
};

/// A gzip'ed tar with one entry of `zeros` zero bytes, for bombs.
std::string tar_gzip_of(std::string_view path, std::uint64_t zeros);

/// A model's archive as a user packs it: model.onnx and labels.txt below "NAME/".
std::string model_archive(std::string_view content);

}  // namespace varda::artifact::testing
