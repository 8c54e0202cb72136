// coco: the JSON of object detection. https://cocodataset.org/#format-data
//
// {"images": [{...}], "annotations": [{"category_id": 1, ...}], "categories": [{"id": 1, "name":
// "cat"}], ...} in any order.
#include <optional>

#include "base/text.h"
#include "codec/json.h"
#include "dataset/internal/json_file.h"

namespace varda::dataset {
namespace {

class CocoScanner final : public JsonFileScanner {
 public:
  CocoScanner() : JsonFileScanner(kMemberDepth) { tally_.has_classes = true; }
  CocoScanner(const CocoScanner&) = default;

 private:
  using Kind = JsonStream::Kind;
  static constexpr std::size_t kSectionDepth =
      1;  // the file is an object with sections as members,
  static constexpr std::size_t kElementDepth = 2;  // the sections are arrays of objects,
  static constexpr std::size_t kMemberDepth = 3;   // the objects have members

  enum class Section : std::uint8_t { kOther, kImages, kAnnotations, kCategories };
  enum class Member : std::uint8_t { kOther, kId, kName, kCategoryId };

  void name(std::size_t depth, std::string_view raw, bool cut) override {
    std::string plain;
    if (depth <= kMemberDepth && raw.find('\\') != std::string_view::npos && !cut) {
      if (const auto text = codec::parse_json("\"" + std::string(raw) + "\""); text.ok())
        raw = plain = text->as_string();
    }
    if (depth == kSectionDepth) {
      section_ = cut                    ? Section::kOther
                 : raw == "images"      ? Section::kImages
                 : raw == "annotations" ? Section::kAnnotations
                 : raw == "categories"  ? Section::kCategories
                                        : Section::kOther;
    } else if (depth == kMemberDepth) {
      member_ = cut                    ? Member::kOther
                : raw == "id"          ? Member::kId
                : raw == "name"        ? Member::kName
                : raw == "category_id" ? Member::kCategoryId
                                       : Member::kOther;
    }
  }

  void begin(std::size_t depth, Kind kind, std::uint64_t at, std::uint64_t line) override {
    if (depth == 0) {
      if (kind != Kind::kObject) wrong_file("the file is not an object", at, line);
    } else if (depth == kSectionDepth) {
      if (section_ == Section::kImages) has_images_ = true;
      if (section_ != Section::kOther && kind != Kind::kArray) {
        add_malformed(tally_, {"", line + 1, at, std::string(section_name()) + " is not an array"});
        section_ = Section::kOther;
      }
    } else if (depth == kElementDepth && section_ != Section::kOther) {
      element_at_ = at;
      element_line_ = line + 1;
      id_.reset();
      label_.reset();
      has_category_ = false;
      is_object_ = kind == Kind::kObject;
    }
  }

  void end(std::size_t depth, Kind kind, std::string_view raw, bool cut) override {
    if (section_ == Section::kOther) return;
    if (depth == kMemberDepth && is_object_) {
      if (member_ == Member::kCategoryId) has_category_ = true;
      const bool wants_id = section_ == Section::kAnnotations ? member_ == Member::kCategoryId
                                                              : member_ == Member::kId;
      if (wants_id)
        id_ = kind == Kind::kNumber && !cut ? parse_integer<std::int64_t>(raw) : std::nullopt;
      if (member_ == Member::kName && section_ == Section::kCategories) {
        label_.reset();
        if (kind == Kind::kString && !cut) {
          const auto text = codec::parse_json("\"" + std::string(raw) + "\"");
          if (text.ok() && !text->as_string().empty() &&
              text->as_string().size() <= kClassNameBytesMax)
            label_ = text->as_string();
        }
      }
      member_ = Member::kOther;
    } else if (depth == kElementDepth) {
      end_element();
    }
  }

  void end_element() {
    const auto malformed = [&](std::string what) {
      add_malformed(tally_, {"", element_line_, element_at_,
                             std::string(section_name()) + ": " + std::move(what)});
    };
    if (!is_object_) return malformed("an element that is not an object");
    if (section_ == Section::kImages) {
      ++tally_.samples;
    } else if (section_ == Section::kAnnotations) {
      // Captions have no category.
      if (has_category_ && !id_) return malformed("a category_id that is not an integer");
      if (id_) add_bounded(annotations_, tally_.further_classes, *id_);
    } else {
      if (!id_) return malformed("a category without an integer as its id");
      if (!label_)
        return malformed("a category without a name of 1 to " + std::to_string(kClassNameBytesMax) +
                         " bytes");
      names_[*id_] = *label_;
      if (names_.size() > kClassesMax) names_.erase(std::prev(names_.end()));
    }
  }

  void complete() override {
    if (!has_images_) tally_.inexact = "the file has no images";
    for (const auto& [id, name] : names_) tally_.classes[name];
    for (const auto& [id, count] : annotations_) {
      const auto name = names_.find(id);
      tally_.classes[name == names_.end() ? "category " + std::to_string(id) : name->second] +=
          count;
    }
  }

  std::string_view section_name() const {
    return section_ == Section::kImages        ? "images"
           : section_ == Section::kAnnotations ? "annotations"
                                               : "categories";
  }

  std::unique_ptr<StreamScanner> clone() const override {
    return std::make_unique<CocoScanner>(*this);
  }

  Json save_own() const override {
    Json out = JsonFileScanner::save_own();
    Json counts = Json::array(), names = Json::array();
    for (const auto& [id, count] : annotations_) counts.push_back(Json::array({id, count}));
    for (const auto& [id, name] : names_) names.push_back(Json::array({id, name}));
    out.set("annotations", std::move(counts));
    out.set("names", std::move(names));
    out.set("further", tally_.further_classes);
    out.set("section", static_cast<int>(section_));
    out.set("member", static_cast<int>(member_));
    out.set("hasImages", has_images_ ? 1 : 0);
    out.set("isObject", is_object_ ? 1 : 0);
    out.set("categoryGiven", has_category_ ? 1 : 0);
    if (id_) out.set("id", *id_);
    if (label_) out.set("label", *label_);
    out.set("elementAt", element_at_);
    out.set("elementLine", element_line_);
    return out;
  }

  Status restore_own(const Json& saved) override {
    TRY_VOID(JsonFileScanner::restore_own(saved));
    tally_.has_classes = true;
    Saved in(saved);
    for (const Json& pair : saved["annotations"].as_array()) {
      if (pair.size() != 2 || annotations_.size() >= kClassesMax)
        return Error(Code::kCorrupt, "annotations are wrong");
      annotations_[pair.as_array()[0].as_integer()] =
          static_cast<std::uint64_t>(pair.as_array()[1].as_integer());
    }
    for (const Json& pair : saved["names"].as_array()) {
      if (pair.size() != 2 || names_.size() >= kClassesMax)
        return Error(Code::kCorrupt, "names are wrong");
      names_[pair.as_array()[0].as_integer()] = pair.as_array()[1].as_string();
    }
    tally_.further_classes = in.number("further");
    section_ = static_cast<Section>(in.number("section", 3));
    member_ = static_cast<Member>(in.number("member", 3));
    has_images_ = in.flag("hasImages");
    is_object_ = in.flag("isObject");
    has_category_ = in.flag("categoryGiven");
    if (const Json* id = saved.find("id")) id_ = id->as_integer();
    if (const Json* label = saved.find("label")) label_ = label->as_string();
    element_at_ = in.number("elementAt");
    element_line_ = in.number("elementLine");
    return in.status();
  }

  std::map<std::int64_t, std::uint64_t> annotations_;  // by category
  std::map<std::int64_t, std::string> names_;
  Section section_ = Section::kOther;
  Member member_ = Member::kOther;
  bool has_images_ = false;
  // For the element being read.
  bool is_object_ = false;
  bool has_category_ = false;
  std::optional<std::int64_t> id_;
  std::optional<std::string> label_;
  std::uint64_t element_at_ = 0, element_line_ = 0;
};

}  // namespace

extern const Format kCoco;
const Format kCoco{.name = "coco",
                   .sample = "an object in the array \"images\" of the file",
                   .stream = [](const FormatOptions&) -> std::unique_ptr<StreamScanner> {
                     return std::make_unique<CocoScanner>();
                   }};

}  // namespace varda::dataset
