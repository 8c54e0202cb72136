#include "dataset/voc_annotation.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <expat.h>
#include <utility>

#include "base/text.h"
#include "dataset/format.h"

namespace varda::dataset {
namespace {

constexpr std::size_t kElementDepthMax = 64;
constexpr std::size_t kObjectsMax = 100'000;
constexpr std::size_t kCoordinateBytesMax = 64;
constexpr std::array<std::string_view, 4> kCoordinates = {"xmin", "ymin", "xmax", "ymax"};

}  // namespace

class VocAnnotation::Parser {
 public:
  Parser() : parser_(XML_ParserCreate(nullptr), XML_ParserFree) {
    if (!parser_) return;
    XML_SetUserData(parser_.get(), this);
    XML_SetElementHandler(
        parser_.get(),
        [](void* self, const XML_Char* name, const XML_Char**) {
          static_cast<Parser*>(self)->begin(name);
        },
        [](void* self, const XML_Char*) { static_cast<Parser*>(self)->end(); });
    XML_SetCharacterDataHandler(parser_.get(), [](void* self, const XML_Char* text, int size) {
      static_cast<Parser*>(self)->text({text, static_cast<std::size_t>(size)});
    });
    XML_SetEntityDeclHandler(
        parser_.get(), [](void* self, const XML_Char*, int, const XML_Char*, int, const XML_Char*,
                          const XML_Char*, const XML_Char*, const XML_Char*) {
          static_cast<Parser*>(self)->fail("it declares entities, which are not expanded");
        });
  }

  bool feed(std::string_view bytes, bool last) {
    if (!parser_) {
      fail("no memory to parse it");
    } else if (why_.empty() &&
               XML_Parse(parser_.get(), bytes.data(), static_cast<int>(bytes.size()),
                         last ? 1 : 0) != XML_STATUS_OK) {
      fail(XML_ErrorString(XML_GetErrorCode(parser_.get())));
    }
    return why_.empty();
  }

  void fail(std::string why) {
    if (!why_.empty()) return;
    why_ = std::move(why);
    if (!parser_) return;
    line_ = XML_GetCurrentLineNumber(parser_.get());
    byte_ =
        static_cast<std::uint64_t>(std::max<XML_Index>(XML_GetCurrentByteIndex(parser_.get()), 0));
    XML_StopParser(parser_.get(), XML_FALSE);
  }

  std::string why_;
  std::uint64_t line_ = 0, byte_ = 0;
  std::vector<VocObject> objects_;
  std::string file_name_;

 private:
  enum class Reads : std::uint8_t { kNothing, kFileName, kName, kCoordinate };

  void begin(std::string_view name) {
    if (depth_ == 0 && name != "annotation") return fail("its root is not <annotation>");
    reads_ = Reads::kNothing;
    if (depth_ == 1) begin_child(name);
    // Only annotation/object/name names a class; annotation/object/part/name names a part.
    if (depth_ == 2 && in_object_) {
      if (name == "name" && !named_) read_text(Reads::kName, kClassNameBytesMax + 1);
      in_box_ = name == "bndbox";
    }
    if (depth_ == 3 && in_object_ && in_box_) {
      coordinate_ = static_cast<std::size_t>(
          std::find(kCoordinates.begin(), kCoordinates.end(), name) - kCoordinates.begin());
      if (coordinate_ < kCoordinates.size()) read_text(Reads::kCoordinate, kCoordinateBytesMax);
    }
    if (++depth_ > kElementDepthMax)
      fail("elements nested deeper than " + std::to_string(kElementDepthMax));
  }

  void begin_child(std::string_view name) {
    in_object_ = name == "object";
    in_box_ = named_ = false;
    box_ = {};
    line_of_object_ = XML_GetCurrentLineNumber(parser_.get());
    if (name == "filename") read_text(Reads::kFileName, kVocFileNameBytesMax);
  }

  void read_text(Reads what, std::size_t bytes_max) {
    reads_ = what;
    text_depth_ = depth_ + 1;
    text_max_ = bytes_max;
    text_.clear();
  }

  void text(std::string_view text) {
    if (reads_ != Reads::kNothing && depth_ == text_depth_)
      text_ += text.substr(0, text_max_ - std::min(text_max_, text_.size()));
  }

  void end() {
    if (reads_ != Reads::kNothing && depth_ == text_depth_) end_text();
    --depth_;
    if (depth_ == 2) in_box_ = false;
    if (depth_ != 1 || !in_object_) return;
    in_object_ = false;
    if (!named_) return fail("an object without a name");
    VocObject object{std::move(name_), std::nullopt, line_of_object_};
    if (std::all_of(box_.begin(), box_.end(), [](const auto& value) { return value.has_value(); }))
      object.box = VocBox{*box_[0], *box_[1], *box_[2], *box_[3]};
    objects_.push_back(std::move(object));
    if (objects_.size() > kObjectsMax)
      fail("more than " + std::to_string(kObjectsMax) + " objects");
  }

  void end_text() {
    const Reads what = std::exchange(reads_, Reads::kNothing);
    const std::string_view found = trim(text_);
    if (what == Reads::kFileName) {
      file_name_ = found;
    } else if (what == Reads::kName) {
      named_ = true;
      name_ = found;
      if (name_.empty()) return fail("an object without a name");
      if (name_.size() > kClassNameBytesMax)
        fail("the name of an object is longer than " + std::to_string(kClassNameBytesMax) +
             " bytes");
    } else {
      double value = 0;
      const auto [stop, error] = std::from_chars(found.data(), found.data() + found.size(), value);
      if (error == std::errc() && stop == found.data() + found.size()) box_[coordinate_] = value;
    }
  }

  const std::unique_ptr<XML_ParserStruct, void (*)(XML_Parser)> parser_;
  std::size_t depth_ = 0;  // elements open
  bool in_object_ = false, in_box_ = false, named_ = false;
  Reads reads_ = Reads::kNothing;
  std::size_t text_depth_ = 0, text_max_ = 0;
  std::string text_, name_;
  std::size_t coordinate_ = 0;
  std::array<std::optional<double>, 4> box_;
  std::uint64_t line_of_object_ = 0;
};

VocAnnotation::VocAnnotation() : parser_(std::make_unique<Parser>()) {}
VocAnnotation::~VocAnnotation() = default;
bool VocAnnotation::feed(std::string_view bytes, bool last) { return parser_->feed(bytes, last); }
void VocAnnotation::fail(std::string why) { parser_->fail(std::move(why)); }
const std::string& VocAnnotation::why() const { return parser_->why_; }
std::uint64_t VocAnnotation::line() const { return parser_->line_; }
std::uint64_t VocAnnotation::byte() const { return parser_->byte_; }
const std::vector<VocObject>& VocAnnotation::objects() const { return parser_->objects_; }
const std::string& VocAnnotation::file_name() const { return parser_->file_name_; }

}  // namespace varda::dataset
