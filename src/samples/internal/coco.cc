// coco: the JSON of object detection. https://cocodataset.org/#format-data
//
// {"images": [{"id": 1, "file_name": "1.jpg"}], "annotations": [{"image_id": 1, "category_id": 3,
// "bbox": [left, top, width, height], "iscrowd": 0}], "categories": [{"id": 3, "name": "cat"}]}, in
// any order. Boxes of crowds are no samples.
#include "samples/internal/coco.h"

#include <cmath>
#include <limits>
#include <unordered_map>

#include "base/text.h"
#include "codec/json.h"
#include "codec/text.h"
#include "dataset/json_stream.h"
#include "samples/internal/boxes.h"
#include "samples/internal/formats.h"

namespace varda::samples::internal {
namespace {

constexpr std::size_t kCocoReadBytes = 256 << 10;

std::optional<std::string> text_of(std::string_view raw, bool cut) {
  if (cut) return std::nullopt;
  if (raw.find('\\') == std::string_view::npos) return std::string(raw);
  const auto text = codec::parse_json("\"" + std::string(raw) + "\"");
  return text.ok() ? std::optional(text->as_string()) : std::nullopt;
}

}  // namespace

void CocoReader::name(std::size_t depth, std::string_view raw, bool cut) {
  if (depth == kSectionDepth) section_ = text_of(raw, cut).value_or("");
  if (depth == kMemberDepth) member_ = text_of(raw, cut).value_or("");
}

void CocoReader::begin(std::size_t depth, Kind kind, std::uint64_t /*at*/, std::uint64_t line) {
  line_ = line + 1;
  if (depth == 0 && kind != Kind::kObject) fail("the file is not an object");
  if (depth == kSectionDepth) {
    number_ = 0;
    wanted_ = section_ == "images" || section_ == "annotations" || section_ == "categories";
    if (wanted_ && kind != Kind::kArray) fail(section_ + " is not an array");
  } else if (wanted_ && depth == kElementDepth) {
    ++number_;
    element_ = {};
    element_.number = number_;
    if (kind != Kind::kObject) fail("an element is not an object");
  } else if (wanted_ && depth == kMemberDepth && member_ == "bbox") {
    element_.box.clear();
  }
}

void CocoReader::end(std::size_t depth, Kind kind, std::string_view raw, bool cut) {
  if (!wanted_ || !error_.empty()) return;
  if (depth == kBoxDepth && member_ == "bbox") {
    const auto value = kind == Kind::kNumber && !cut ? parse_number(raw) : std::nullopt;
    if (!value || element_.box.size() == 4) return fail("bbox is not a list of four numbers");
    element_.box.push_back(*value);
  } else if (depth == kMemberDepth) {
    const auto integer =
        kind == Kind::kNumber && !cut ? parse_integer<std::int64_t>(raw) : std::nullopt;
    if (member_ == "id") element_.id = integer;
    if (member_ == "image_id") element_.image = integer;
    if (member_ == "category_id") element_.category = integer;
    if (member_ == "iscrowd") element_.crowd = integer == 1;
    if (kind == Kind::kString && (member_ == "file_name" || member_ == "name"))
      (member_ == "name" ? element_.name : element_.file_name) = text_of(raw, cut);
    member_.clear();
  } else if (depth == kElementDepth) {
    end_element();
  } else if (depth == kSectionDepth) {
    wanted_ = false;
  }
}

void CocoReader::end_element() {
  const bool annotation = section_ == "annotations", category = section_ == "categories";
  if (annotation && element_.crowd) return;
  if (annotation && (!element_.image || !element_.category || element_.box.size() != 4))
    return fail("an annotation needs an image_id, a category_id, and a bbox of four numbers");
  if (!annotation && !element_.id) return fail("an integer as its id is missing");
  if (section_ == "images" && element_.file_name.value_or("").empty())
    return fail("a file_name of 1 to 1024 bytes is missing");
  if (category &&
      (element_.name.value_or("").empty() || element_.name->size() > dataset::kClassNameBytesMax))
    return fail("a name of 1 to " + std::to_string(dataset::kClassNameBytesMax) +
                " bytes is missing");
  if (number_ > std::numeric_limits<std::uint32_t>::max()) return fail("too many elements");
  const Status taken = annotation ? sink_.annotation(element_)
                       : category ? sink_.category(element_)
                                  : sink_.image(element_);
  if (!taken.ok()) fail(taken.error().message());
}

void CocoReader::fail(std::string why) {
  if (!error_.empty()) return;
  error_ = "line " + std::to_string(line_) + ": ";
  if (wanted_ && number_ > 0) error_ += section_ + ", element " + std::to_string(number_) + ": ";
  error_ += why;
}

Status CocoReader::feed(std::string_view bytes) {
  text_.feed(bytes, offset_, *this);
  offset_ += bytes.size();
  return status();
}

Status CocoReader::end_text() {
  const bool whole = text_.end(*this);
  TRY_VOID(status());
  if (!whole) return Error(Code::kInvalid, "the JSON text is incomplete; copy the file again");
  return {};
}

Status CocoReader::status() {
  if (error_.empty() && !text_.error().empty())
    error_ = "line " + std::to_string(text_.lines() + 1) + ": " + text_.error();
  if (error_.empty()) return {};
  return Error(Code::kInvalid, error_);
}

namespace {

/// Ids become numbers in the order of their first mention.
class Numbers {
 public:
  std::uint32_t of(std::int64_t id) {
    return numbers_.try_emplace(id, static_cast<std::uint32_t>(numbers_.size())).first->second;
  }
  std::size_t size() const { return numbers_.size(); }

 private:
  std::unordered_map<std::int64_t, std::uint32_t> numbers_;
};

/// Collects the parts of the file, which come in any order.
class CocoCollector final : public CocoReader::Sink {
 public:
  Status image(const CocoElement& element) override {
    return name(image_numbers_.of(*element.id), *element.file_name, image_names_, image_given_);
  }
  Status category(const CocoElement& element) override {
    if (category_numbers_.size() > dataset::kClassesMax)
      return Error(Code::kInvalid,
                   "there are more than " + std::to_string(dataset::kClassesMax) + " categories");
    return name(category_numbers_.of(*element.id), *element.name, category_names_, category_given_);
  }
  Status annotation(const CocoElement& element) override {
    const auto at = [&](std::size_t i) { return static_cast<float>(element.box[i]); };
    for (const double value : element.box) {
      if (std::abs(value) > 1e9) return Error(Code::kInvalid, "the box is too large");
    }
    boxes_.push_back({image_numbers_.of(*element.image),
                      category_numbers_.of(*element.category),
                      {at(0), at(1), static_cast<float>(element.box[0] + element.box[2]),
                       static_cast<float>(element.box[1] + element.box[3])},
                      static_cast<std::uint32_t>(element.number)});
    return {};
  }

  /// Moves everything into `out`. `file`: the name of the annotations.
  Status finish(const std::string& file, Boxes& out) {
    image_names_.resize(image_numbers_.size());
    image_given_.resize(image_numbers_.size());
    category_names_.resize(category_numbers_.size());
    category_given_.resize(category_numbers_.size());
    for (std::string& one : category_names_) out.add_label(std::move(one));
    for (const std::string& one : image_names_) out.add_image(one, file);
    for (const CocoBox& box : boxes_) {
      const auto failed = [&](const Error& why) {
        return why.context(file + ", annotation " + std::to_string(box.number));
      };
      if (!image_given_[box.image])
        return failed(Error(Code::kInvalid, "no image has its image_id; add the image"));
      if (!category_given_[box.category])
        return failed(Error(Code::kInvalid, "no category has its category_id; add the category"));
      if (auto added = out.add_box(box.image, box.category, box.box, box.number); !added.ok())
        return failed(added.error());
    }
    return {};
  }

 private:
  struct CocoBox {
    std::uint32_t image, category;
    Box box;
    std::uint32_t number;
  };

  static Status name(std::uint32_t number, const std::string& text, std::vector<std::string>& names,
                     std::vector<bool>& given) {
    if (names.size() <= number) names.resize(number + 1);
    if (given.size() <= number) given.resize(number + 1);
    if (given[number]) return Error(Code::kInvalid, "an earlier element has the same id");
    given[number] = true;
    names[number] = text;
    return {};
  }

  Numbers image_numbers_, category_numbers_;
  std::vector<std::string> image_names_, category_names_;
  std::vector<bool> image_given_, category_given_;
  std::vector<CocoBox> boxes_;
};

/// Folders that may have the images of ROOT/annotations/instances_train2017.json: beside the file,
/// ROOT/images, ROOT/train2017, ROOT.
std::vector<os::Path> image_folders(const os::Path& file) {
  const os::Path folder = file.parent_path();
  const std::string stem = file.stem().string();
  const std::string split = stem.substr(stem.find('_') + 1);
  std::vector<os::Path> out = {folder, folder / "images", folder / split};
  if (folder.filename() == "annotations") {
    const os::Path root = folder.parent_path();
    out.insert(out.end(), {root / "images", root / split, root});
  }
  return out;
}

}  // namespace

Opened open_coco(Source source) {
  TRY(PictureInput input, PictureInput::bind(source.options.preprocess, source.options.input));
  TRY(const auto file, source.tree.open(source.path));
  Fingerprint hash;
  CocoCollector collector;
  CocoReader reader(collector);
  std::string buffer(kCocoReadBytes, '\0');
  const auto read = [&]() -> Status {
    for (std::uint64_t offset = 0;;) {
      TRY_VOID(source.ctx.check());
      TRY(const std::size_t count, file->read(offset, buffer));
      if (count == 0) return reader.end_text();
      const std::string_view bytes = std::string_view(buffer).substr(0, count);
      hash.add_bytes(bytes);
      offset += count;
      TRY_VOID(reader.feed(bytes));
    }
  };
  if (auto done = read(); !done.ok()) return std::move(done).error().context(source.name());
  hash.add_text("");
  auto out = std::make_shared<Boxes>(source, std::move(input), ", annotation ");
  TRY_VOID(collector.finish(source.name(), *out));
  if (out->size() == 0)
    return Error(Code::kInvalid, source.name() + " has no boxes; training needs at least one");
  TRY_VOID(out->finish(source.ctx, image_folders(source.path), hash));
  return std::shared_ptr<const Dataset>(std::move(out));
}

}  // namespace varda::samples::internal
