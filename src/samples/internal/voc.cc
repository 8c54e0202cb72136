// voc, also named xml: Pascal VOC, a folder with Annotations/*.xml and JPEGImages, or a folder of
// annotations and images.
#include <algorithm>
#include <map>
#include <set>

#include "codec/text.h"
#include "dataset/voc_annotation.h"
#include "samples/internal/boxes.h"
#include "samples/internal/formats.h"

namespace varda::samples::internal {
namespace {

constexpr std::size_t kXmlReadBytes = 64 << 10;

/// Reads one annotation and adds its bytes to `hash`.
Status read_annotation(os::ReadableFile& file, dataset::VocAnnotation& out, Fingerprint& hash) {
  std::string buffer(kXmlReadBytes, '\0');
  for (std::uint64_t at = 0;;) {
    TRY(const std::size_t count, file.read(at, buffer));
    const std::string_view bytes = std::string_view(buffer).substr(0, count);
    hash.add_bytes(bytes);
    at += count;
    if (at > dataset::kXmlBytesMax)
      out.fail("longer than " + std::to_string(dataset::kXmlBytesMax >> 20) + " MiB");
    if (!out.feed(bytes, count < buffer.size()) || count < buffer.size()) return {};
  }
}

Status add_annotation(const std::string& name, const dataset::VocAnnotation& annotation,
                      std::map<std::string, std::uint32_t>& labels, Boxes& out) {
  const auto failed = [&](std::uint64_t line, const std::string& why) {
    return Error(Code::kInvalid, name + ", line " + std::to_string(line) + ": " + why);
  };
  if (!annotation.why().empty()) return failed(annotation.line(), annotation.why());
  if (annotation.objects().empty()) return {};
  if (annotation.file_name().empty())
    return failed(1, "the annotation has no <filename>; add the name of the image");
  const std::uint32_t image = out.add_image(annotation.file_name(), name);
  for (const dataset::VocObject& object : annotation.objects()) {
    if (!object.box)
      return failed(object.line, "the object " + codec::quote(object.name) +
                                     " has no <bndbox> with xmin, ymin, xmax and ymax");
    auto label = labels.find(object.name);
    if (label == labels.end())
      label = labels.emplace(object.name, out.add_label(object.name)).first;
    // Pixels count from 1, and the last one belongs to the box.
    const auto number = [](double value) {
      return static_cast<float>(std::clamp(value, -1e9, 1e9));
    };
    const Box box{number(object.box->left - 1), number(object.box->top - 1),
                  number(object.box->right), number(object.box->bottom)};
    if (auto added =
            out.add_box(image, label->second, box, static_cast<std::uint32_t>(object.line));
        !added.ok())
      return failed(object.line, added.error().message());
  }
  return {};
}

}  // namespace

Opened open_voc(Source source) {
  TRY(PictureInput input, PictureInput::bind(source.options.preprocess, source.options.input));
  const auto facts = source.tree.facts(source.path / "Annotations");
  const bool bare = !facts.ok() && facts.error().code() == Code::kNotFound;
  const std::string below = bare ? "" : "Annotations/";
  TRY(const std::set<std::string> names, file_names(source.tree, source.path / below));
  auto out = std::make_shared<Boxes>(source, std::move(input), ", line ");
  Fingerprint hash;
  std::map<std::string, std::uint32_t> labels;
  for (const std::string& name : names) {
    if (!has_extension(name, ".xml") || name.starts_with('.')) continue;
    TRY_VOID(source.ctx.check());
    TRY(const auto file, source.tree.open(source.path / below / name));
    hash.add_text(below + name);
    dataset::VocAnnotation annotation;
    TRY_VOID(read_annotation(*file, annotation, hash));
    TRY_VOID(add_annotation(below + name, annotation, labels, *out));
  }
  if (out->size() == 0)
    return Error(Code::kInvalid, source.name() +
                                     " has no file Annotations/*.xml with an object; training "
                                     "needs at least one");
  const std::vector<os::Path> folders = {source.path / "JPEGImages", source.path,
                                         source.path / "images"};
  TRY_VOID(out->finish(source.ctx, folders, hash));
  return std::shared_ptr<const Dataset>(std::move(out));
}

}  // namespace varda::samples::internal
