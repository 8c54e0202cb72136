#include "apiserver/internal/negotiation.h"

#include <algorithm>
#include <charconv>

#include "apiserver/internal/protobuf.h"
#include "base/text.h"
#include "codec/yaml.h"

namespace varda::apiserver {

using codec::Json;

namespace {

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

// "q=0.9" or "as=Table".
void read_parameter(std::string_view part, MediaRange& range) {
  const std::size_t equals = part.find('=');
  if (equals == std::string_view::npos) return;
  const std::string_view key = trim(part.substr(0, equals));
  const std::string text(trim(part.substr(equals + 1)));
  if (key == "q") {
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), range.quality);
    if (parsed.ec != std::errc()) range.quality = 0;
  } else if (key == "as") {
    range.as = text;
  } else if (key == "v") {
    range.version = text;
  } else if (key == "g") {
    range.group = text;
  }
}

}  // namespace

std::vector<MediaRange> parse_accept(const net::Request& request) {
  std::vector<MediaRange> ranges;
  for (const auto& [name, value] : request.headers.all()) {
    if (!equal_ignoring_case(name, "accept")) continue;
    for (const std::string_view clause : split(value, ',')) {
      if (trim(clause).empty()) continue;
      const std::vector<std::string_view> parts = split(clause, ';');
      MediaRange range;
      range.type = lower(trim(parts.front()));
      for (std::size_t i = 1; i < parts.size(); ++i) read_parameter(parts[i], range);
      ranges.push_back(std::move(range));
    }
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
