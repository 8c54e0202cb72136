// idx, npy and npz: an array of samples, and an array of labels with equally many rows.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <variant>

#include "base/text.h"
#include "codec/archive.h"
#include "samples/internal/array.h"
#include "samples/internal/formats.h"
#include "samples/internal/input.h"

namespace varda::samples::internal {
namespace {

constexpr std::size_t kLabelBlockBytes = 64 << 10;
constexpr std::size_t kArchiveReadBytes = 256 << 10;

/// Names of the two arrays, in the order of preference.
constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kPairs = {
    {{"x", "y"}, {"x_train", "y_train"}, {"images", "labels"}, {"data", "target"}}};
constexpr std::string_view kPairsText =
    "X and y, x_train and y_train, images and labels, or data "
    "and target";

/// The arrangement of an 8-bit image in a row.
struct RowImage {
  std::size_t width = 0, height = 0, channels = 1;
  bool planes = false;  // [C,H,W]
};

std::optional<RowImage> image_of(const tensor::Shape& row) {
  const auto size = [&](std::size_t i) { return static_cast<std::size_t>(row[i]); };
  const auto is_channels = [&](std::size_t i) { return row[i] == 1 || row[i] == 3; };
  if (std::find(row.begin(), row.end(), 0) != row.end()) return std::nullopt;
  if (row.size() == 2) return RowImage{size(1), size(0), 1, false};
  if (row.size() == 3 && is_channels(2)) return RowImage{size(1), size(0), size(2), false};
  if (row.size() == 3 && is_channels(0)) return RowImage{size(2), size(1), size(0), true};
  return std::nullopt;
}

/// `memory`: the pixels of an earlier image.
codec::Image image_from(std::string_view bytes, const RowImage& form,
                        std::vector<std::uint8_t> memory = {}) {
  codec::Image out{form.width, form.height, form.channels, std::move(memory)};
  out.pixels.assign(bytes.begin(), bytes.end());
  if (!form.planes || form.channels == 1) return out;
  const std::size_t area = form.width * form.height;
  for (std::size_t i = 0; i < area; ++i) {
    for (std::size_t c = 0; c < form.channels; ++c)
      out.pixels[i * form.channels + c] = static_cast<std::uint8_t>(bytes[c * area + i]);
  }
  return out;
}

class Arrays final : public Readable {
 public:
  Arrays(Array x, Array y, Labels labels)
      : Readable(std::move(labels)), x_(std::move(x)), y_(std::move(y)) {}

  Status bind(const Options& options);
  Status collect_labels(const Context& ctx);
  void set_fingerprint(std::string text) { fingerprint_ = std::move(text); }

  std::size_t size() const override { return x_.rows(); }
  std::string place(std::size_t index) const override {
    return x_.name() + ", row " + std::to_string(index + 1);
  }
  Result<std::string> picture(std::size_t index) const override {
    if (!has_pictures()) return std::string();
    Array::Rows rows(x_);
    TRY(const std::string_view bytes, rows.bytes(index).context(place(index)));
    return codec::encode_png(image_from(bytes, form_));
  }

 private:
  class Reader;
  bool has_pictures() const override { return std::holds_alternative<PictureInput>(*input_); }
  Result<tensor::Tensor> allocate(std::size_t count, tensor::Pool& memory) const override {
    return std::visit([&](const auto& input) { return input.allocate(count, memory); }, *input_);
  }
  std::unique_ptr<SampleReader> reader() const override;

  const Array x_, y_;
  std::optional<std::variant<NumberInput, PictureInput>> input_;
  RowImage form_;  // of pictures
};

Status Arrays::bind(const Options& options) {
  const tensor::Shape row = x_.row_shape();
  const bool declared = options.preprocess.image.has_value();
  std::optional<Error> why;
  if (x_.dtype() == tensor::DType::kUint8) {
    std::optional<RowImage> form = image_of(row);
    auto picture = form ? PictureInput::bind(options.preprocess, options.input,
                                             PictureInput::Size{form->width, form->height})
                        : PictureInput::bind(options.preprocess, options.input);
    if (!form && declared && picture.ok() && row.size() == 1) {
      // A flat row is an image of the size that the step makes.
      const transform::ImageInput& image = picture->image();
      const RowImage flat{image.width(), image.height(), image.channels(), false};
      if (flat.width * flat.height * flat.channels == static_cast<std::size_t>(row[0])) form = flat;
    }
    if (form && picture.ok()) {
      form_ = *form;
      input_ = std::move(*picture);
      return {};
    }
    if (!picture.ok()) why = picture.error();
    if (declared)
      return why ? *why
                 : Error(Code::kInvalid, "rows of shape " + tensor::to_string(row) +
                                             " are no images, which preprocess.image needs");
  }
  auto numbers = NumberInput::bind(options.input, row);
  if (!numbers.ok()) return image_of(row) && why ? *why : numbers.error();
  input_ = std::move(*numbers);
  return {};
}

/// The cells of a label, from the numbers of its row.
class LabelCells {
 public:
  const std::vector<std::string_view>& of(std::span<const double> values) {
    texts_.clear();
    cells_.clear();
    for (const double value : values)
      texts_.push_back(std::isnan(value) ? "nan" : number_text(value));
    cells_.assign(texts_.begin(), texts_.end());
    return cells_;
  }

 private:
  std::vector<std::string> texts_;
  std::vector<std::string_view> cells_;
};

Status Arrays::collect_labels(const Context& ctx) {
  Array::Rows rows(y_, kLabelBlockBytes);
  LabelCells cells;
  for (std::size_t row = 0; row < y_.rows(); ++row) {
    if (row % 1024 == 0) TRY_VOID(ctx.check());
    TRY(const auto values, rows.values(row).context(y_.name()));
    if (auto added = labels_.add(cells.of(values)); !added.ok())
      return std::move(added).error().context(y_.name() + ", row " + std::to_string(row + 1));
  }
  labels_.settle();
  return {};
}

class Arrays::Reader final : public SampleReader {
 public:
  explicit Reader(const Arrays& arrays) : arrays_(arrays), x_(arrays.x_), y_(arrays.y_) {}

  Status read(const Place& at, Batch& out) override {
    if (const auto* picture = std::get_if<PictureInput>(&*arrays_.input_)) {
      TRY(const std::string_view bytes, x_.bytes(at.index));
      codec::Image image = image_from(bytes, arrays_.form_, std::move(memory_.bytes));
      picture->write(std::move(image), at.augment, at.seed, at.index, out.input, at.row, memory_);
    } else {
      const NumberInput& numbers = std::get<NumberInput>(*arrays_.input_);
      TRY(const auto values, x_.values(at.index));
      for (const double value : values) TRY_VOID(numbers.check(value));
      numbers.write(values, out.input, at.row);
    }
    TRY(const auto label, y_.values(at.index));
    return arrays_.labels_.append(cells_.of(label), out);
  }

 private:
  const Arrays& arrays_;
  Array::Rows x_, y_;
  LabelCells cells_;
  transform::Pixels memory_;
};

std::unique_ptr<SampleReader> Arrays::reader() const { return std::make_unique<Reader>(*this); }

Opened open_arrays(const Source& source, Array x, Array y, Fingerprint& hash) {
  const std::string x_name = x.name(), y_name = y.name();
  if (x.rows() != y.rows())
    return Error(Code::kInvalid, x_name + " has " + std::to_string(x.rows()) + " rows, but " +
                                     y_name + " has " + std::to_string(y.rows()) +
                                     "; each sample needs one label");
  if (x.rows() == 0)
    return Error(Code::kInvalid, x_name + " has no rows; training needs at least one");
  TRY(const std::size_t columns, tensor::elements(y.row_shape()));
  const Task task = source.options.task;
  if (columns == 0 || columns > dataset::kClassesMax || y.shape().size() > 2 ||
      (columns > 1 && task == Task::kClassification))
    return Error(Code::kInvalid,
                 y_name + ": labels of shape " + tensor::to_string(y.shape()) +
                     (task == Task::kClassification
                          ? " do not fit a classification, which has one class a sample; save "
                            "y.argmax(axis=1)"
                          : " must have one row of numbers a sample"));
  std::vector<std::string> names;
  for (std::size_t i = 0; i < columns; ++i) names.push_back(std::to_string(i));
  auto out = std::make_shared<Arrays>(std::move(x), std::move(y),
                                      Labels(task, source.options.classes, std::move(names)));
  if (auto bound = out->bind(source.options); !bound.ok())
    return std::move(bound).error().context(x_name);
  TRY_VOID(out->collect_labels(source.ctx));
  out->set_fingerprint(hash.text());
  return std::shared_ptr<const Dataset>(std::move(out));
}

Opened open_array_files(const Source& source, const os::Path& x_path, const os::Path& y_path) {
  Fingerprint hash;
  for (const os::Path& path : {x_path, y_path}) {
    TRY(const auto file, source.tree.open(path));
    TRY_VOID(hash.add_file(path.filename().string(), *file, Fingerprint::kDataWindow));
  }
  std::uint64_t memory_left = kUnpackedBytesMax;
  TRY(Array x, Array::open(source.ctx, source.tree, x_path, memory_left));
  TRY(Array y, Array::open(source.ctx, source.tree, y_path, memory_left));
  return open_arrays(source, std::move(x), std::move(y), hash);
}

/// "train-images-idx3-ubyte" and "train-images.idx3-ubyte.gz" give "train-".
std::optional<std::string> idx_stem(const std::string& name, std::string_view kind) {
  const std::string text = lower(name);
  const std::size_t at = text.find(kind);
  if (at == std::string::npos || text.find("idx", at + kind.size()) == std::string::npos)
    return std::nullopt;
  return text.substr(0, at);
}

struct NamedPair {
  std::string x, y;
};

/// The pair of arrays among names, which end with `extension`. Case is ignored.
template <typename Names>
std::optional<NamedPair> find_pair(const Names& names, std::string_view extension) {
  const auto find = [&](std::string_view wanted) -> std::optional<std::string> {
    for (const std::string& name : names) {
      if (equal_ignoring_case(name, std::string(wanted) + std::string(extension))) return name;
    }
    return std::nullopt;
  };
  for (const auto& [x, y] : kPairs) {
    const auto x_name = find(x), y_name = find(y);
    if (x_name && y_name) return NamedPair{*x_name, *y_name};
  }
  return std::nullopt;
}

Result<std::unique_ptr<codec::ArchiveReader>> open_archive(const Context& ctx,
                                                           os::ReadableFile& file) {
  return codec::ArchiveReader::open(
      [&ctx, &file, offset = std::uint64_t{0}]() mutable -> Result<std::string> {
        TRY_VOID(ctx.check());
        std::string piece(kArchiveReadBytes, '\0');
        TRY(const std::size_t count, file.read(offset, piece));
        piece.resize(count);
        offset += count;
        return piece;
      });
}

Result<std::string> read_entry(codec::ArchiveReader& archive, std::uint64_t bytes_max) {
  std::string out;
  for (;;) {
    TRY(const std::string piece, archive.read());
    if (piece.empty()) return out;
    if (piece.size() > bytes_max - out.size())
      return Error(Code::kExhausted, "the arrays have more than " +
                                         std::to_string(kUnpackedBytesMax >> 20) +
                                         " MiB; save them as X.npy and y.npy");
    out += piece;
  }
}

}  // namespace

Opened open_idx(Source source) {
  const os::Path folder = source.is_folder ? source.path : source.path.parent_path();
  TRY(const std::set<std::string> names, file_names(source.tree, folder));
  std::map<std::string, NamedPair> pairs;  // by stem
  for (const std::string& name : names) {
    if (const auto stem = idx_stem(name, "images")) {
      if (source.is_folder || name == source.name()) pairs[*stem].x = name;
    } else if (const auto label_stem = idx_stem(name, "labels")) {
      pairs[*label_stem].y = name;
    }
  }
  std::erase_if(pairs,
                [](const auto& pair) { return pair.second.x.empty() || pair.second.y.empty(); });
  if (pairs.empty())
    return Error(Code::kInvalid,
                 source.path.string() +
                     (source.is_folder ? " has no pair" : " is not one of a pair") +
                     " of files *images*idx* and *labels*idx*, such as train-images-idx3-ubyte "
                     "and train-labels-idx1-ubyte");
  auto chosen = pairs.begin();
  if (pairs.size() > 1) {
    chosen = std::find_if(pairs.begin(), pairs.end(),
                          [](const auto& pair) { return pair.first.starts_with("train"); });
    if (chosen == pairs.end())
      return Error(Code::kInvalid,
                   source.path.string() + " has several pairs of files (" +
                       join(pairs, ", ", [](const auto& pair) { return pair.second.x; }) +
                       "); name the file of images as the path");
  }
  return open_array_files(source, folder / chosen->second.x, folder / chosen->second.y);
}

Opened open_npy(Source source) {
  const os::Path folder = source.is_folder ? source.path : source.path.parent_path();
  TRY(std::set<std::string> names, file_names(source.tree, folder));
  if (!source.is_folder) {
    // The given file is the first of the pair.
    std::erase_if(names, [&](const std::string& name) {
      return name != source.name() && !find_pair(std::set{source.name(), name}, ".npy");
    });
  }
  const auto pair = find_pair(names, ".npy");
  if (!pair)
    return Error(Code::kInvalid, source.path.string() +
                                     (source.is_folder ? " has no pair" : " is not one of a pair") +
                                     " of .npy files named " + std::string(kPairsText));
  return open_array_files(source, folder / pair->x, folder / pair->y);
}

Opened open_npz(Source source) {
  TRY(const auto file, source.tree.open(source.path));
  const auto opened = [&]() -> Opened {
    Fingerprint hash;
    TRY_VOID(hash.add_file(source.name(), *file, Fingerprint::kDataWindow));
    std::vector<std::string> names;
    {
      TRY(const auto archive, open_archive(source.ctx, *file));
      for (;;) {
        TRY(const auto entry, archive->next());
        if (!entry) break;
        if (names.size() < dataset::kClassesMax) names.push_back(entry->path);
      }
    }
    const auto pair = find_pair(names, ".npy");
    if (!pair) return Error(Code::kInvalid, "no pair of arrays named " + std::string(kPairsText));
    std::uint64_t memory_left = kUnpackedBytesMax;
    std::optional<Array> x, y;
    TRY(const auto archive, open_archive(source.ctx, *file));
    while (!x || !y) {
      TRY(const auto entry, archive->next());
      if (!entry) return Error(Code::kConflict, "the file changed; start again");
      auto& to = entry->path == pair->x ? x : y;
      if ((entry->path != pair->x && entry->path != pair->y) || to) continue;
      TRY(std::string bytes, read_entry(*archive, memory_left));
      memory_left -= bytes.size();
      TRY(to, Array::of_bytes(entry->path, std::move(bytes)).context(entry->path));
    }
    return open_arrays(source, std::move(*x), std::move(*y), hash);
  };
  return opened().context(source.name());
}

}  // namespace varda::samples::internal
