// Reads the JSON of coco in pieces.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "dataset/json_stream.h"

namespace varda::samples::internal {

/// The members of one image, annotation or category that matter here.
struct CocoElement {
  std::uint64_t number = 0;  // in its array, from 1
  std::optional<std::int64_t> id, image, category;
  std::optional<std::string> file_name, name;
  std::vector<double> box;  // left, top, width, height
  bool crowd = false;
};

/// Memory does not grow with the text. Not thread-safe.
class CocoReader final : private dataset::JsonStream::Listener {
 public:
  /// Takes complete elements. An error ends the reading.
  class Sink {
   public:
    virtual ~Sink() = default;
    virtual Status image(const CocoElement& element) = 0;       // has id and file_name
    virtual Status category(const CocoElement& element) = 0;    // has id and name
    virtual Status annotation(const CocoElement& element) = 0;  // has image, category, four numbers
  };
  /// `sink` outlives the reader.
  explicit CocoReader(Sink& sink) : sink_(sink) {}

  /// kInvalid names the line and the element.
  Status feed(std::string_view bytes);
  /// Ends the text.
  Status end_text();

 private:
  using Kind = dataset::JsonStream::Kind;
  // The file is an object; its members are arrays of objects; bbox is an array in these.
  static constexpr std::size_t kSectionDepth = 1, kElementDepth = 2, kMemberDepth = 3,
                               kBoxDepth = 4;

  void name(std::size_t depth, std::string_view raw, bool cut) override;
  void begin(std::size_t depth, Kind kind, std::uint64_t at, std::uint64_t line) override;
  void end(std::size_t depth, Kind kind, std::string_view raw, bool cut) override;
  void end_element();
  void fail(std::string why);
  Status status();

  Sink& sink_;
  dataset::JsonStream text_{kBoxDepth};
  std::uint64_t offset_ = 0, line_ = 1;
  std::string section_, member_;
  bool wanted_ = false;  // the section matters
  std::uint64_t number_ = 0;
  CocoElement element_;
  std::string error_;
};

}  // namespace varda::samples::internal
