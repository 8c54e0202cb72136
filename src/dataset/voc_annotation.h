// One annotation file of Pascal VOC. http://host.robots.ox.ac.uk/pascal/VOC/
//
// The XML is untrusted. Expat parses it in pieces and fetches nothing. The parser stops at the
// first entity declaration, so no entity is ever expanded.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace varda::dataset {

struct VocBox {
  double left = 0, top = 0, right = 0, bottom = 0;  // xmin, ymin, xmax, ymax as written
};

struct VocObject {
  std::string name;
  std::optional<VocBox> box;  // empty: a number is missing or wrong
  std::uint64_t line = 0;     // of the element
};

/// Not thread-safe.
class VocAnnotation {
 public:
  VocAnnotation();
  ~VocAnnotation();

  /// False once the file is known not to be an annotation.
  bool feed(std::string_view bytes, bool last);
  /// Ends the parsing. The first reason stays.
  void fail(std::string why);

  /// The reason why the file is no annotation; "": none so far.
  const std::string& why() const;
  std::uint64_t line() const;  // of the reason
  std::uint64_t byte() const;
  const std::vector<VocObject>& objects() const;
  /// The name of the image; at most kVocFileNameBytesMax bytes.
  const std::string& file_name() const;

 private:
  class Parser;
  const std::unique_ptr<Parser> parser_;
};

inline constexpr std::size_t kVocFileNameBytesMax = 4096;

}  // namespace varda::dataset
