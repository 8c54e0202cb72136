#include "artifact/internal/tree_image.h"

#include <algorithm>

namespace varda::artifact {

Result<std::unique_ptr<TreeImage>> TreeImage::open(os::FileSystem& fs, const os::Path& directory,
                                                   const Limits& limits) {
  std::unique_ptr<TreeImage> image(new TreeImage(fs, directory));
  EntryRules rules(limits);
  TRY(auto items, pack_items(fs, directory, limits, rules));
  image->entries_.reserve(items.size());
  for (PackItem& item : items) {
    TRY(const std::string header, codec::tar_header(item.entry));
    const std::uint64_t start = image->end_;
    const std::uint64_t content = start + header.size() + item.entry.size_bytes;
    image->end_ =
        (content + codec::kTarBlockBytes - 1) / codec::kTarBlockBytes * codec::kTarBlockBytes;
    image->entries_.push_back({std::move(item), start, header.size()});
  }
  return image;
}

Result<std::string> TreeImage::read(std::uint64_t offset, std::size_t max) {
  if (offset >= end_) {
    const std::uint64_t left = offset < size() ? size() - offset : 0;
    return std::string(std::min<std::uint64_t>(left, max), '\0');
  }
  const auto after =
      std::upper_bound(entries_.begin(), entries_.end(), offset,
                       [](std::uint64_t at, const Entry& entry) { return at < entry.start; });
  const auto index = static_cast<std::size_t>(after - entries_.begin()) - 1;
  const Entry& entry = entries_[index];
  std::uint64_t within = offset - entry.start;
  if (within < entry.header_bytes) {
    TRY(const std::string header, codec::tar_header(entry.item.entry));
    return header.substr(within, max);
  }
  within -= entry.header_bytes;
  const std::uint64_t content = entry.item.entry.size_bytes;
  if (within < content)
    return read_file(index, within, std::min<std::uint64_t>(max, content - within));
  const std::uint64_t next = index + 1 < entries_.size() ? entries_[index + 1].start : end_;
  return std::string(std::min<std::uint64_t>(max, next - offset), '\0');
}

Result<std::string> TreeImage::read_file(std::size_t index, std::uint64_t offset, std::size_t max) {
  const os::Path path = directory_ / entries_[index].item.path;
  if (file_ == nullptr || file_index_ != index) {
    TRY(file_, fs_.open(path, os::Open::kRead));
    file_index_ = index;
  }
  TRY_VOID(file_->seek(offset));
  TRY(std::string bytes, file_->read(max));
  if (bytes.empty()) return Error(Code::kUnavailable, path.string() + ": became shorter");
  return bytes;
}

}  // namespace varda::artifact
