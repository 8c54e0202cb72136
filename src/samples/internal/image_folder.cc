// imagefolder: one folder per class, with images below. A .npy file holds one sample as an array.
#include <limits>

#include "samples/internal/array.h"
#include "samples/internal/formats.h"
#include "samples/internal/pictures.h"
#include "tensor/npy.h"

namespace varda::samples::internal {
namespace {

constexpr std::string_view kArrayExtension = ".npy";

bool is_array_name(std::string_view name) { return has_extension(name, kArrayExtension); }

class ImageFolder final : public Pictures {
 public:
  ImageFolder(const Source& source, std::optional<PictureInput> input)
      : Pictures(source.tree, Labels(source.options.task, source.options.classes),
                 std::move(input)),
        root_(source.path) {}

  Status scan(const Context& ctx) {
    Fingerprint hash;
    const auto wanted = [](std::string_view name) {
      return is_image_name(name) || is_array_name(name);
    };
    TRY_VOID(visit_files(ctx, tree_, root_, wanted,
                         [&](const Found& found) { return add(found, hash); }));
    if (size() == 0)
      return Error(Code::kInvalid, root_.string() +
                                       " has no images in class folders; put each image into a "
                                       "folder that names its class");
    for (std::size_t i = 0; i < folders_.size(); ++i) {
      const std::size_t end = i + 1 < folders_.size() ? folders_[i + 1].first : size();
      auto added = labels_.add(folders_[i].class_name, end - folders_[i].first);
      if (!added.ok()) return std::move(added).error().context(folders_[i].path);
    }
    labels_.settle();
    fingerprint_ = hash.text();
    return {};
  }

  /// Fits the arrays into the model's input, after scan(). Pictures beside them must give tensors
  /// of the same shape.
  Status bind_arrays(const tensor::Spec& input) {
    if (!array_shape_) return {};
    auto numbers = NumberInput::bind(input, *array_shape_);
    if (!numbers.ok()) return std::move(numbers).error().context(first_array_);
    numbers_ = std::move(numbers).value();
    if (!has_pictures()) return {};
    tensor::Pool memory(0);
    TRY(const tensor::Tensor of_pictures, Pictures::allocate(1, memory));
    TRY(const tensor::Tensor of_arrays, numbers_->allocate(1, memory));
    if (of_pictures.shape() == of_arrays.shape()) return {};
    return Error(Code::kInvalid, first_array_ + " is an array for a tensor of shape " +
                                     tensor::to_string(of_arrays.shape()) +
                                     ", and the pictures give " +
                                     tensor::to_string(of_pictures.shape()));
  }

  std::size_t size() const override { return folder_of_.size(); }
  std::string place(std::size_t index) const override {
    return folders_[folder_of_[index]].path + "/" + std::string(names_[index]);
  }
  bool has_pictures() const override { return pictures_ > 0; }
  Result<std::string> picture(std::size_t index) const override {
    if (is_array_name(names_[index])) return std::string();
    return Pictures::picture(index);
  }

 private:
  class Reader;
  struct Folder {
    std::string path, class_name;
    std::size_t first = 0;  // number of the first image
  };

  Status add(const Found& found, Fingerprint& hash) {
    // An image beside the class folders is no sample, as in room dataset.
    if (found.folder.empty()) return {};
    const std::string path = found.folder + "/" + found.name;
    TRY_VOID(check_decodable(path));
    if (folder_of_.size() == std::numeric_limits<std::uint32_t>::max())
      return Error(Code::kExhausted, "more than 4,294,967,295 images");
    TRY(const auto file, found.open());
    if (is_array_name(found.name)) {
      TRY_VOID(add_array(path, *file).context(path));
    } else {
      ++pictures_;
    }
    TRY_VOID(hash.add_file(path, *file, Fingerprint::kImageWindow));
    if (folders_.empty() || folders_.back().path != found.folder)
      folders_.push_back(
          {found.folder, found.folder.substr(0, found.folder.find('/')), folder_of_.size()});
    folder_of_.push_back(static_cast<std::uint32_t>(folders_.size() - 1));
    names_.add(found.name);
    return {};
  }

  Status add_array(const std::string& path, os::ReadableFile& file) {
    std::string head(tensor::kNpyHeaderBytesMax, '\0');
    TRY(const std::size_t count, file.read(0, head));
    TRY(const tensor::NpyHeader header,
        tensor::parse_npy_header(std::string_view(head).substr(0, count)));
    if (!array_shape_) {
      array_shape_ = header.shape;
      first_array_ = path;
    } else if (*array_shape_ != header.shape) {
      return Error(Code::kInvalid, "the array has the shape " + tensor::to_string(header.shape) +
                                       ", and that of " + first_array_ + " is " +
                                       tensor::to_string(*array_shape_));
    }
    return {};
  }

  Result<Item> item(std::size_t index) const override {
    const Folder& folder = folders_[folder_of_[index]];
    return Item{root_ / folder.path / names_[index], std::nullopt, folder.class_name};
  }
  Result<tensor::Tensor> allocate(std::size_t count, tensor::Pool& memory) const override {
    return has_pictures() ? Pictures::allocate(count, memory) : numbers_->allocate(count, memory);
  }
  std::unique_ptr<SampleReader> reader() const override;

  const os::Path root_;
  std::vector<Folder> folders_;
  std::vector<std::uint32_t> folder_of_;
  Names names_;
  std::size_t pictures_ = 0;
  std::optional<tensor::Shape> array_shape_;
  std::string first_array_;
  std::optional<NumberInput> numbers_;  // for arrays
};

class ImageFolder::Reader final : public SampleReader {
 public:
  explicit Reader(const ImageFolder& folder)
      : folder_(folder), pictures_(folder.Pictures::reader()) {}

  Status read(const Place& at, Batch& out) override {
    if (!is_array_name(folder_.names_[at.index])) return pictures_->read(at, out);
    TRY(const Item item, folder_.item(at.index));
    TRY(const auto file, folder_.tree_.open(item.path));
    TRY(const std::string bytes, read_whole(*file, kImageBytesMax));
    TRY(const tensor::NpyHeader header, tensor::parse_npy_header(bytes));
    if (header.shape != *folder_.array_shape_)
      return Error(Code::kConflict, "the array changed its shape");
    // An array of one row.
    tensor::Shape row = header.shape;
    row.insert(row.begin(), 1);
    TRY(const Array array,
        Array::of_bytes(std::string(folder_.names_[at.index]),
                        tensor::npy_header(header.dtype, row) + bytes.substr(header.data_at)));
    Array::Rows rows(array);
    TRY(const auto values, rows.values(0));
    for (const double value : values) TRY_VOID(folder_.numbers_->check(value));
    folder_.numbers_->write(values, out.input, at.row);
    const std::string_view label = item.label;
    return folder_.labels_.append({&label, 1}, out);
  }

 private:
  const ImageFolder& folder_;
  const std::unique_ptr<SampleReader> pictures_;
};

std::unique_ptr<SampleReader> ImageFolder::reader() const {
  return std::make_unique<Reader>(*this);
}

}  // namespace

Opened open_image_folder(Source source) {
  auto input = PictureInput::bind(source.options.preprocess, source.options.input);
  auto out = std::make_shared<ImageFolder>(
      source, input.ok() ? std::optional<PictureInput>(*input) : std::nullopt);
  TRY_VOID(out->scan(source.ctx));
  if (out->has_pictures() && !input.ok()) return std::move(input).error();
  TRY_VOID(out->bind_arrays(source.options.input));
  return std::shared_ptr<const Dataset>(std::move(out));
}

}  // namespace varda::samples::internal
