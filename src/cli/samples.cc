#include "cli/samples.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "cli/printer.h"
#include "codec/digest.h"
#include "codec/text.h"
#include "spool/id.h"
#include "tensor/npy.h"

namespace varda::cli {
namespace {

using codec::Image;
using spool::Facts;

std::string short_number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3f", value);
  return text.data();
}

std::string score_of(const Facts& facts, const char* name) {
  const auto found = facts.scores.find(name);
  return found == facts.scores.end() ? "" : short_number(found->second);
}

std::string sample_age(const Facts& facts, WallTime now) {
  const auto age = std::chrono::duration_cast<std::chrono::seconds>(now - spool::time_of(facts.id));
  const auto seconds = std::max<std::int64_t>(age.count(), 0);
  if (seconds < 120) return std::to_string(seconds) + "s";
  if (seconds < 7200) return std::to_string(seconds / 60) + "m";
  if (seconds < 172800) return std::to_string(seconds / 3600) + "h";
  return std::to_string(seconds / 86400) + "d";
}

std::string best_label(const Facts& facts) {
  if (facts.answers.empty() || facts.answers.front().best.empty()) return "";
  return harmless(facts.answers.front().best.front().label);
}

// The last answer that differs from the first, or the pseudo-label.
std::string other_label(const Facts& facts) {
  if (facts.pseudo_label)
    return harmless(facts.pseudo_label->label) + " (" + short_number(facts.pseudo_label->score) +
           ")";
  for (std::size_t i = facts.answers.size(); i-- > 1;)
    if (!facts.answers[i].best.empty())
      return harmless(facts.answers[i].best.front().label) + "? (" +
             short_number(facts.answers[i].best.front().score) + ")";
  return "";
}

Result<std::vector<std::string>> directories_in(os::FileSystem& fs, const os::Path& directory) {
  const auto names = fs.list(directory);
  std::vector<std::string> out;
  if (!names.ok()) {
    if (names.error().code() == Code::kNotFound) return out;
    return names.error();
  }
  for (const std::string& name : *names) {
    const auto info = fs.stat(directory / name);
    if (info.ok() && *info && (*info)->kind == os::FileKind::kDirectory) out.push_back(name);
  }
  return out;
}

Status add_spools(os::FileSystem& fs, const std::string& node, const os::Path& samples,
                  std::vector<FoundSpool>& out) {
  TRY(const auto namespaces, directories_in(fs, samples));
  for (const std::string& ns : namespaces) {
    TRY(const auto names, directories_in(fs, samples / ns));
    for (const std::string& name : names)
      out.push_back({node, ns + "/" + name, samples / ns / name});
  }
  return {};
}

double value_at(tensor::DType dtype, const char* at) {
  const auto read = [at](auto value) {
    std::memcpy(&value, at, sizeof(value));
    return static_cast<double>(value);
  };
  switch (dtype) {
    case tensor::DType::kFp32:
      return read(float{});
    case tensor::DType::kFp64:
      return read(double{});
    case tensor::DType::kUint8:
      return read(std::uint8_t{});
    case tensor::DType::kInt8:
      return read(std::int8_t{});
    case tensor::DType::kInt32:
      return read(std::int32_t{});
    case tensor::DType::kInt64:
      return read(std::int64_t{});
    default:
      return std::nan("");
  }
}

struct Plane {
  std::size_t width = 0, height = 0, channels = 1;
  bool planar = false;  // [C,H,W]
};

std::optional<Plane> plane_of(tensor::Shape shape) {
  const auto size = [&](std::size_t i) { return static_cast<std::size_t>(shape[i]); };
  if (shape.size() == 2) return Plane{size(1), size(0)};
  if (shape.size() == 3 && (shape[0] == 1 || shape[0] == 3))
    return Plane{size(2), size(1), size(0), true};
  if (shape.size() == 3 && (shape[2] == 1 || shape[2] == 3))
    return Plane{size(1), size(0), size(2)};
  if (shape.size() == 1) {  // a flattened square
    const auto side =
        static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(size(0)))));
    if (side >= 4 && side * side == size(0)) return Plane{side, side};
  }
  return std::nullopt;
}

Result<Image> picture_of_array(std::string_view bytes) {
  TRY(const tensor::NpyHeader header, tensor::parse_npy_header(bytes));
  const auto plane = plane_of(header.shape);
  const std::size_t step = tensor::element_bytes(header.dtype);
  constexpr std::size_t kSideMax = 4096;
  if (!plane || plane->width == 0 || plane->height == 0 || plane->width > kSideMax ||
      plane->height > kSideMax || bytes.size() < header.data_at + header.data_bytes)
    return Error(Code::kUnsupported,
                 "an array of shape " + tensor::to_string(header.shape) + " is no picture");
  const std::size_t count = plane->width * plane->height * plane->channels;
  std::vector<double> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = value_at(header.dtype, bytes.data() + header.data_at + i * step);
  double low = 0, high = 0;
  bool any = false;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    low = any ? std::min(low, value) : value;
    high = any ? std::max(high, value) : value;
    any = true;
  }
  if (!any) return Error(Code::kUnsupported, "the array has no finite numbers");
  Image out{plane->width, plane->height, plane->channels, std::vector<std::uint8_t>(count)};
  const std::size_t area = plane->width * plane->height;
  for (std::size_t pixel = 0; pixel < area; ++pixel) {
    for (std::size_t c = 0; c < plane->channels; ++c) {
      const double value = values[plane->planar ? c * area + pixel : pixel * plane->channels + c];
      const double share = high > low ? (value - low) / (high - low) : 0;
      out.pixels[pixel * plane->channels + c] =
          std::isfinite(share) ? static_cast<std::uint8_t>(std::lround(255 * share)) : 0;
    }
  }
  return out;
}

// The mean of the pixels that one pixel of a smaller picture covers.
Image shrunk(const Image& image, std::size_t width_max) {
  if (image.width <= width_max) return image;
  Image out{width_max,
            std::max<std::size_t>(image.height * width_max / image.width, 1),
            image.channels,
            {}};
  out.pixels.resize(out.width * out.height * out.channels);
  for (std::size_t y = 0; y < out.height; ++y) {
    const std::size_t top = y * image.height / out.height;
    const std::size_t bottom = std::max((y + 1) * image.height / out.height, top + 1);
    for (std::size_t x = 0; x < out.width; ++x) {
      const std::size_t left = x * image.width / out.width;
      const std::size_t right = std::max((x + 1) * image.width / out.width, left + 1);
      for (std::size_t c = 0; c < image.channels; ++c) {
        std::size_t sum = 0;
        for (std::size_t v = top; v < bottom; ++v)
          for (std::size_t u = left; u < right; ++u)
            sum += image.pixels[(v * image.width + u) * image.channels + c];
        out.pixels[(y * out.width + x) * out.channels + c] =
            static_cast<std::uint8_t>(sum / ((bottom - top) * (right - left)));
      }
    }
  }
  return out;
}

std::string colour(const Image& image, std::size_t x, std::size_t y) {
  const auto at = [&](std::size_t c) {
    const std::size_t channel = image.channels == 3 ? c : 0;
    return std::to_string(image.pixels[(y * image.width + x) * image.channels + channel]);
  };
  return at(0) + ";" + at(1) + ";" + at(2);
}

std::string half_blocks(const Image& image) {
  std::string out;
  for (std::size_t y = 0; y < image.height; y += 2) {
    for (std::size_t x = 0; x < image.width; ++x) {
      out += "\x1b[38;2;" + colour(image, x, y) + "m";
      out += y + 1 < image.height ? "\x1b[48;2;" + colour(image, x, y + 1) + "m" : "\x1b[49m";
      out += "▀";
    }
    out += "\x1b[0m\n";
  }
  return out;
}

// https://sw.kovidgoyal.net/kitty/graphics-protocol: pieces of at most 4096 bytes.
std::string kitty_picture(const std::string& png) {
  constexpr std::size_t kPiece = 4096;
  const std::string text = codec::base64(png);
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += kPiece) {
    const bool last = at + kPiece >= text.size();
    out += std::string("\x1b_G") + (at == 0 ? "f=100,a=T," : "") + "m=" + (last ? "0" : "1") + ";" +
           text.substr(at, kPiece) + "\x1b\\";
  }
  return out + "\n";
}

std::string html(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string data_url(const SheetItem& item) {
  if (item.facts.format == Facts::kJpeg)
    return "data:image/jpeg;base64," + codec::base64(item.bytes);
  if (item.facts.format == Facts::kPng) return "data:image/png;base64," + codec::base64(item.bytes);
  const auto picture = picture_of(item.facts, item.bytes);
  if (!picture.ok()) return "";
  const auto png = codec::encode_png(*picture);
  return png.ok() ? "data:image/png;base64," + codec::base64(*png) : "";
}

double confidence_of(const Facts& facts) {
  const auto found = facts.scores.find("confidence");
  return found == facts.scores.end() ? 2 : found->second;
}

struct ExportFile {
  std::string name;  // in the export
  os::Path path;
};

Result<std::vector<ExportFile>> files_of(os::FileSystem& fs, const os::Path& root) {
  std::vector<ExportFile> out;
  TRY(const auto pending, spool::list(fs, root));
  const std::string unlabelled(spool::kPending), labels(spool::kLabel);
  for (const Facts& facts : pending) {
    for (const std::string& name : {facts.file(), facts.id + ".json"})
      out.push_back({unlabelled + "/" + name, root / unlabelled / name});
  }
  TRY(const auto labelled, spool::labelled(fs, root));
  for (const spool::Labelled& one : labelled)
    out.push_back({labels + "/" + one.class_name + "/" + one.file,
                   root / labels / one.class_name / one.file});
  return out;
}

}  // namespace

Result<std::vector<FoundSpool>> find_spools(os::FileSystem& fs, const os::Path& data_directory) {
  std::vector<FoundSpool> out;
  TRY_VOID(add_spools(fs, "", data_directory / "samples", out));
  TRY(const auto nodes, directories_in(fs, data_directory / "nodes"));
  for (const std::string& node : nodes)
    TRY_VOID(add_spools(fs, node, data_directory / "nodes" / node / "data" / "samples", out));
  return out;
}

std::vector<FoundSpool> spools_of(const std::vector<FoundSpool>& all, std::string_view name,
                                  std::string_view ns) {
  std::vector<FoundSpool> out;
  const std::string key = name.find('/') != std::string_view::npos
                              ? std::string(name)
                              : std::string(ns) + "/" + std::string(name);
  for (const FoundSpool& one : all)
    if (one.key == key || one.key.starts_with(key + ".")) out.push_back(one);
  return out;
}

Result<std::vector<Facts>> choose_samples(const std::vector<Facts>& all,
                                          const std::vector<std::string>& texts) {
  std::vector<Facts> out;
  for (const std::string& text : texts) {
    const Facts* found = nullptr;
    for (const Facts& one : all) {
      if (text.empty() || !one.id.starts_with(text)) continue;
      if (found != nullptr)
        return Error(Code::kInvalid,
                     "several samples begin with " + text + ": write more of the id");
      found = &one;
    }
    if (found == nullptr)
      return Error(Code::kNotFound,
                   "there is no sample " + harmless(text) + "; `varda samples ls` lists all");
    out.push_back(*found);
  }
  return out;
}

std::string samples_table(const std::vector<Facts>& samples, WallTime now) {
  std::vector<std::vector<std::string>> rows{{"ID", "AGE", "REASON", "LABEL", "CONFIDENCE",
                                              "MARGIN", "ENTROPY", "OTHER", "VERSION", "BYTES",
                                              "FORMAT"}};
  for (auto at = samples.rbegin(); at != samples.rend(); ++at) {
    rows.push_back({at->id, sample_age(*at, now), at->reason, best_label(*at),
                    score_of(*at, "confidence"), score_of(*at, "margin"), score_of(*at, "entropy"),
                    other_label(*at), harmless(at->model_version), std::to_string(at->bytes),
                    at->format});
  }
  return align(rows);
}

std::string samples_json(const std::vector<Facts>& samples) {
  codec::Json items = codec::Json::array();
  for (const Facts& one : samples) items.push_back(spool::to_json(one));
  return codec::write_json_pretty(codec::Json::object({{"samples", std::move(items)}})) + "\n";
}

std::string sample_text(const Facts& facts) {
  std::vector<std::vector<std::string>> rows{
      {"id:", facts.id},
      {"time:", harmless(facts.time)},
      {"model:", harmless(facts.model) + ", version " + harmless(facts.model_version)},
      {"reason:",
       facts.reason + (facts.policy.empty() ? "" : ", policy " + harmless(facts.policy))},
      {"file:", facts.file() + ", " + std::to_string(facts.bytes) + " bytes"}};
  for (const auto& [name, value] : facts.scores)
    rows.push_back({harmless(name) + ":", short_number(value)});
  for (const spool::Answer& answer : facts.answers) {
    std::string text;
    for (const spool::ClassScore& one : answer.best)
      text += (text.empty() ? "" : ", ") + harmless(one.label) + " " + short_number(one.score);
    rows.push_back({(answer.tier.empty() ? "answer" : harmless(answer.tier)) + ":", text});
  }
  if (facts.pseudo_label)
    rows.push_back({"pseudo-label:", harmless(facts.pseudo_label->label) + " " +
                                         short_number(facts.pseudo_label->score) + ", by " +
                                         harmless(facts.pseudo_label->tier)});
  return align(rows);
}

Result<Image> picture_of(const Facts& facts, std::string_view bytes) {
  constexpr std::size_t kPixelsMax = std::size_t{16} << 20;
  if (facts.format == Facts::kNpy) return picture_of_array(bytes);
  return codec::decode_image(bytes, kPixelsMax);
}

Terminal terminal_of(std::string_view term, std::string_view program, std::string_view kitty) {
  if (!kitty.empty() || term == "xterm-kitty" || program == "ghostty") return Terminal::kKitty;
  if (program == "iTerm.app" || program == "WezTerm") return Terminal::kIterm;
  return Terminal::kBlocks;
}

std::string terminal_picture(const Image& image, Terminal terminal, std::size_t columns) {
  if (terminal == Terminal::kBlocks) return half_blocks(shrunk(image, columns));
  constexpr std::size_t kPixelsOfColumn = 8;
  const auto png = codec::encode_png(shrunk(image, columns * kPixelsOfColumn));
  if (!png.ok()) return half_blocks(shrunk(image, columns));
  if (terminal == Terminal::kKitty) return kitty_picture(*png);
  // https://iterm2.com/documentation-images.html
  return "\x1b]1337;File=inline=1;size=" + std::to_string(png->size()) + ":" + codec::base64(*png) +
         "\x07\n";
}

std::string contact_sheet(std::string_view title, const std::vector<SheetItem>& items) {
  std::vector<const SheetItem*> order;
  for (const SheetItem& item : items) order.push_back(&item);
  std::stable_sort(order.begin(), order.end(), [](const SheetItem* a, const SheetItem* b) {
    return confidence_of(a->facts) < confidence_of(b->facts);
  });
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" + html(title) +
      "</title>\n<style>\n"
      "body{font:14px system-ui,sans-serif;margin:1.5em;background:#fafafa;color:#222}\n"
      "main{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:12px}\n"
      "figure{margin:0;padding:8px;background:#fff;border:1px solid #ddd;border-radius:6px}\n"
      "img{width:100%;aspect-ratio:1;object-fit:contain;image-rendering:pixelated;"
      "background:#eee}\n"
      ".none{aspect-ratio:1;display:grid;place-items:center;background:#eee;color:#777}\n"
      "figcaption b{font-size:16px}small{color:#666;word-break:break-all}\n"
      ".hard{border-top:4px solid #d97706}.control{border-top:4px solid #2563eb}\n"
      "</style></head>\n<body><h1>" +
      html(title) + "</h1><p>" + std::to_string(items.size()) +
      " samples, least confident first. Orange: hard. Blue: control.</p><main>\n";
  for (const SheetItem* item : order) {
    const Facts& facts = item->facts;
    const std::string url = data_url(*item);
    out += "<figure class=\"" + html(facts.reason) + "\">";
    out += url.empty() ? "<div class=\"none\">" + html(facts.format) + "</div>"
                       : "<img alt=\"\" src=\"" + url + "\">";
    out += "<figcaption><b>" + html(best_label(facts)) + "</b> " + score_of(facts, "confidence");
    if (const std::string other = other_label(facts); !other.empty()) out += "<br>" + html(other);
    out +=
        "<br><small>" + facts.id + "<br>" + html(facts.time) + "</small></figcaption></figure>\n";
  }
  return out + "</main></body></html>\n";
}

Result<std::optional<codec::ArchiveFormat>> export_format(const os::Path& to) {
  using codec::ArchiveFormat;
  static constexpr std::pair<std::string_view, ArchiveFormat> kWritten[] = {
      {".tar", ArchiveFormat::kTar},      {".tar.gz", ArchiveFormat::kTarGzip},
      {".tgz", ArchiveFormat::kTarGzip},  {".tar.zst", ArchiveFormat::kTarZstd},
      {".tzst", ArchiveFormat::kTarZstd}, {".zip", ArchiveFormat::kZip}};
  static constexpr std::string_view kOthers[] = {".7z",   ".bz2", ".gz", ".lz4",  ".rar",
                                                 ".tbz2", ".txz", ".xz", ".zipx", ".zst"};
  const std::string name = lower(to.filename().string());
  for (const auto& [end, format] : kWritten)
    if (name.ends_with(end)) return std::optional(format);
  for (const std::string_view end : kOthers)
    if (name.ends_with(end))
      return Error(Code::kInvalid,
                   to.string() +
                       ": an export is a new folder, or a file .zip, .tar, .tar.gz, "
                       ".tar.zst or .html");
  return std::optional<ArchiveFormat>();
}

Status export_archive(os::FileSystem& fs, const os::Path& root, codec::ArchiveFormat format,
                      const codec::ArchiveWriter::Sink& sink) {
  TRY(const auto files, files_of(fs, root));
  TRY(const auto writer, codec::ArchiveWriter::create(format, sink));
  for (const ExportFile& file : files) {
    const auto bytes = os::read_file(fs, file.path, spool::kSampleBytesMax);
    if (!bytes.ok()) {
      if (bytes.error().code() == Code::kNotFound) continue;  // moved meanwhile
      return bytes.error();
    }
    TRY_VOID(writer->add({.path = file.name, .size_bytes = bytes->size()}));
    TRY_VOID(writer->write(*bytes));
  }
  return writer->finish();
}

Status export_folder(os::FileSystem& fs, const os::Path& root, const os::Path& to) {
  TRY(const auto info, fs.stat(to));
  if (info) {
    if (info->kind != os::FileKind::kDirectory)
      return Error(Code::kAlreadyExists, to.string() + " is not a folder");
    TRY(const auto names, fs.list(to));
    if (!names.empty()) return Error(Code::kAlreadyExists, to.string() + " is not empty");
  }
  TRY(const auto files, files_of(fs, root));
  for (const ExportFile& file : files) {
    const auto bytes = os::read_file(fs, file.path, spool::kSampleBytesMax);
    if (!bytes.ok()) {
      if (bytes.error().code() == Code::kNotFound) continue;
      return bytes.error();
    }
    TRY_VOID(fs.make_directories((to / file.name).parent_path(), 0755));
    TRY_VOID(os::write_file_atomically(fs, to / file.name, *bytes));
  }
  return {};
}

}  // namespace varda::cli
