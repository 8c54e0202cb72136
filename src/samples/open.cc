#include <algorithm>
#include <array>
#include <set>

#include "base/text.h"
#include "codec/text.h"
#include "samples/internal/formats.h"
#include "samples/samples.h"

namespace varda::samples {
namespace {

using internal::Opened;
using internal::Source;

enum class Takes { kFile, kFolder, kBoth };

struct SampleFormat {
  std::string_view name;
  Takes takes;
  Opened (*open)(Source source);
};

// A new format needs its file in internal/ and a line here.
constexpr std::array kSampleFormats = {
    SampleFormat{"csv", Takes::kBoth, internal::open_csv},
    SampleFormat{"tsv", Takes::kBoth, internal::open_tsv},
    SampleFormat{"idx", Takes::kBoth, internal::open_idx},
    SampleFormat{"npy", Takes::kBoth, internal::open_npy},
    SampleFormat{"npz", Takes::kFile, internal::open_npz},
    SampleFormat{"txt", Takes::kBoth, internal::open_list},
    SampleFormat{"coco", Takes::kFile, internal::open_coco},
    SampleFormat{"voc", Takes::kFolder, internal::open_voc},
    SampleFormat{"xml", Takes::kFolder, internal::open_voc},
    SampleFormat{"imagefolder", Takes::kFolder, internal::open_image_folder},
};

/// The format that the name of a file shows; "" if none.
std::string format_of_file(std::string_view name) {
  const std::string text = lower(name);
  if (text.find("-ubyte") != std::string::npos && text.find("idx") != std::string::npos)
    return "idx";
  for (const std::string_view format : {"csv", "tsv", "npy", "npz", "txt"}) {
    if (internal::has_extension(text, "." + std::string(format))) return std::string(format);
  }
  return internal::has_extension(text, ".json") ? "coco" : "";
}

/// The format of a file by its name, of a folder by its entries; "" if they show none.
Result<std::string> guess_format(os::ReadableTree& tree, const os::Path& path, bool is_folder) {
  if (!is_folder) return format_of_file(path.filename().string());
  TRY(const auto folder, tree.list(path));
  std::set<std::string> found;
  for (;;) {
    TRY(const auto entry, folder->next());
    if (!entry) break;
    if (entry->name.starts_with('.')) continue;
    if (entry->facts.kind == os::FileKind::kDirectory)
      found.insert(entry->name == "Annotations" ? "voc" : "imagefolder");
    else
      found.insert(format_of_file(entry->name));
  }
  // A list of names often lies beside the folders of images.
  for (const char* format : {"voc", "idx", "npy", "csv", "tsv", "imagefolder", "txt"}) {
    if (found.contains(format)) return std::string(format);
  }
  return std::string();
}

}  // namespace

Result<std::shared_ptr<const Dataset>> Dataset::open(const Context& ctx, os::ReadableTree& tree,
                                                     const os::Path& path, Options options) {
  TRY(const os::FileFacts facts, tree.facts(path));
  const bool is_folder = facts.kind == os::FileKind::kDirectory;
  std::string name = lower(options.format);
  if (name.empty()) {
    TRY(name, guess_format(tree, path, is_folder));
  }
  const auto known = join(kSampleFormats, ", ",
                          [](const SampleFormat& format) { return std::string(format.name); });
  const auto format = std::find_if(kSampleFormats.begin(), kSampleFormats.end(),
                                   [&](const SampleFormat& one) { return one.name == name; });
  if (format == kSampleFormats.end()) {
    if (options.format.empty())
      return Error(Code::kInvalid, "the format of " + path.string() +
                                       " is not clear from its name; set the format: " + known);
    return Error(Code::kUnsupported, "training cannot read the format " +
                                         codec::quote(codec::clipped(name, 64)) +
                                         "; training reads " + known);
  }
  if (is_folder && format->takes == Takes::kFile)
    return Error(Code::kInvalid,
                 path.string() + " is a folder; " + name + " is read from one file");
  if (!is_folder && format->takes == Takes::kFolder)
    return Error(Code::kInvalid,
                 path.string() + " is not a folder; " + name + " is read from a folder");
  return format->open({.ctx = ctx,
                       .tree = tree,
                       .path = path,
                       .is_folder = is_folder,
                       .options = std::move(options)});
}

}  // namespace varda::samples
