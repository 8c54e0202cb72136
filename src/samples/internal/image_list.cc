// txt: a list of images, one line each with a path and a label.
#include "samples/internal/image_list.h"

#include "base/text.h"
#include "samples/internal/formats.h"
#include "samples/internal/pictures.h"
#include "samples/internal/record_index.h"

namespace varda::samples::internal {
namespace {

constexpr TableDialect kLines{.delimiter = '\t', .quotes = false};

class ImageList final : public Pictures {
 public:
  ImageList(const Source& source, PictureInput input)
      : Pictures(source.tree, Labels(source.options.task, source.options.classes),
                 std::move(input)),
        root_(source.is_folder ? source.path : source.path.parent_path()),
        index_(source.tree, kLines) {}

  Status scan(const Source& source) {
    Fingerprint hash;
    TRY_VOID(index_.add(source.ctx, source.path, source.is_folder, ".txt", hash,
                        [&](const Record& record, std::size_t, bool) { return add(record); }));
    if (size() == 0)
      return Error(Code::kInvalid, source.name() + " has no lines; training needs at least one");
    labels_.settle();
    RecordIndex::Reader lines(index_);
    for (std::size_t i = 0; i < size(); ++i) {
      TRY_VOID(source.ctx.check());
      if (auto added = add_image(lines, i, hash); !added.ok())
        return std::move(added).error().context(place(i));
    }
    fingerprint_ = hash.text();
    return {};
  }

  std::size_t size() const override { return index_.size(); }
  std::string place(std::size_t index) const override { return index_.place(index); }

 private:
  Result<bool> add(const Record& record) {
    TRY(const auto line, parse_list_line(record));
    if (!line) return false;
    TRY_VOID(check_decodable(line->path));
    TRY_VOID(labels_.add(line->label));
    return true;
  }

  Status add_image(RecordIndex::Reader& lines, std::size_t index, Fingerprint& hash) const {
    TRY(const Item found, locate(lines, index));
    TRY(const auto file, tree_.open(found.path));
    return hash.add_file("", *file, Fingerprint::kImageWindow);  // the lines have the names
  }

  Result<Item> item(std::size_t index) const override {
    RecordIndex::Reader lines(index_);
    return locate(lines, index);
  }

  Result<Item> locate(RecordIndex::Reader& lines, std::size_t index) const {
    TRY(const Record* record, lines.read(index));
    TRY(const auto line, parse_list_line(*record));
    if (!line) return Error(Code::kConflict, "the file changed during the training; start again");
    // Beside the list, else below the dataset's folder.
    const os::Path folder = os::Path(index_.file_of(index)).parent_path();
    TRY(os::Path path, path_below(root_ / folder, line->path));
    const auto facts = tree_.facts(path);
    if (!folder.empty() && !facts.ok() && facts.error().code() == Code::kNotFound) {
      TRY(path, path_below(root_, line->path));
    }
    return Item{std::move(path), std::nullopt, std::string(line->label)};
  }

  const os::Path root_;
  RecordIndex index_;
};

}  // namespace

Result<std::optional<ListLine>> parse_list_line(const Record& record) {
  if (record.size() > 2)
    return Error(Code::kInvalid, "several tabs; a line has a path, one tab, and a label");
  const std::string_view text = trim(record[0]);
  ListLine out;
  if (record.size() == 2) {
    out = {text, trim(record[1])};
  } else {
    if (text.empty()) return std::optional<ListLine>();
    const std::size_t blank = text.find_last_of(" \v\f");
    if (blank != std::string_view::npos)
      out = {trim(text.substr(0, blank)), text.substr(blank + 1)};
  }
  if (out.path.empty())
    return Error(Code::kInvalid, "the line needs a path, a blank or a tab, and a label");
  return std::optional(out);
}

Opened open_list(Source source) {
  TRY(PictureInput input, PictureInput::bind(source.options.preprocess, source.options.input));
  auto out = std::make_shared<ImageList>(source, std::move(input));
  TRY_VOID(out->scan(source));
  return std::shared_ptr<const Dataset>(std::move(out));
}

}  // namespace varda::samples::internal
