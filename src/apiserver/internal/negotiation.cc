#include "apiserver/internal/negotiation.h"

#include <algorithm>
#include <charconv>

#include "apiserver/internal/protobuf.h"
#include "codec/yaml.h"

namespace varda::apiserver {

using codec::Json;

namespace {

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

template <typename F>
void split(std::string_view text, char separator, F&& each) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    each(trim(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

bool is_json(std::string_view type) {
  return type == "application/json" || type == "application/*" || type == "*/*";
}

std::optional<Output::As> as_of(const MediaRange& range) {
  if (!range.as) return Output::As::kObject;
  if (range.group && *range.group != "meta.k8s.io") return std::nullopt;
  if (range.version && *range.version != "v1" && *range.version != "v1beta1") return std::nullopt;
  if (*range.as == "Table") return Output::As::kTable;
  if (*range.as == "PartialObjectMetadata") return Output::As::kPartial;
  if (*range.as == "PartialObjectMetadataList") return Output::As::kPartialList;
  return std::nullopt;
}

}  // namespace

std::vector<MediaRange> parse_accept(const net::Request& request) {
  std::vector<MediaRange> ranges;
  for (const auto& [name, value] : request.headers.all()) {
    if (lower(name) != "accept") continue;
    split(value, ',', [&](std::string_view clause) {
      if (clause.empty()) return;
      MediaRange range;
      bool first = true;
      split(clause, ';', [&](std::string_view part) {
        if (first) {
          range.type = lower(part);
          first = false;
          return;
        }
        const std::size_t equals = part.find('=');
        if (equals == std::string_view::npos) return;
        const std::string_view key = trim(part.substr(0, equals));
        const std::string text(trim(part.substr(equals + 1)));
        if (key == "q") {
          const auto parsed =
              std::from_chars(text.data(), text.data() + text.size(), range.quality);
          if (parsed.ec != std::errc()) range.quality = 0;
        } else if (key == "as") {
          range.as = text;
        } else if (key == "v") {
          range.version = text;
        } else if (key == "g") {
          range.group = text;
        }
      });
      ranges.push_back(std::move(range));
    });
  }
  std::stable_sort(ranges.begin(), ranges.end(),
                   [](const MediaRange& a, const MediaRange& b) { return a.quality > b.quality; });
  return ranges;
}

Outcome<Output> negotiate(const net::Request& request) {
  const std::vector<MediaRange> ranges = parse_accept(request);
  Output output;
  output.pretty = false;
  if (ranges.empty()) return output;
  for (const MediaRange& range : ranges) {
    const bool yaml = range.type == "application/yaml";
    if (!yaml && !is_json(range.type)) continue;
    const auto as = as_of(range);
    if (!as) continue;
    output.format = yaml ? Output::Format::kYaml : Output::Format::kJson;
    output.as = *as;
    output.as_version = range.version.value_or("v1");
    return output;
  }
  return not_acceptable();
}

Outcome<Output> negotiate_watch(const net::Request& request) {
  TRY(Output output, negotiate(request));
  output.format = Output::Format::kJson;
  return output;
}

Output::Format error_format(const net::Request& request) {
  for (const MediaRange& range : parse_accept(request)) {
    if (range.type == "application/yaml") return Output::Format::kYaml;
    if (is_json(range.type)) return Output::Format::kJson;
  }
  return Output::Format::kJson;
}

std::string content_type(const net::Request& request) {
  const auto header = request.headers.find("Content-Type");
  if (!header) return "application/json";
  const std::string type = lower(trim(header->substr(0, header->find(';'))));
  return type.empty() ? "application/json" : type;
}

Outcome<Result<Json>> read_tree(const net::Request& request, const BodyOptions& options) {
  const std::string type = content_type(request);
  if (type == "application/json") {
    return codec::parse_json(request.body, {.depth_max = options.depth_max,
                                            .nodes_max = kBodyValuesMax,
                                            .duplicates = options.duplicates});
  }
  if (type == "application/yaml")
    return codec::parse_yaml(request.body,
                             {.depth_max = options.depth_max, .nodes_max = kBodyValuesMax});
  if (type == kProtobufType) {
    auto object = parse_kubernetes_protobuf(request.body);
    if (!object.ok() && object.error().code() == Code::kUnsupported) {
      ApiStatus status = unsupported_media_type("application/json, application/yaml");
      status.message += ": " + object.error().message();
      return status;
    }
    return object;
  }
  return unsupported_media_type(
      "application/json, application/yaml, application/vnd.kubernetes.protobuf");
}

std::string render(const Json& value, const Output& output) {
  if (output.format == Output::Format::kYaml) return codec::write_yaml(codec::sorted(value));
  if (output.pretty) return codec::write_json_pretty(value) + "\n";
  std::string out;
  codec::write_json(value, out);
  out += '\n';
  return out;
}

std::string_view media_type(Output::Format format) {
  return format == Output::Format::kYaml ? "application/yaml" : "application/json";
}

}  // namespace varda::apiserver
