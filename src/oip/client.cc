#include "oip/client.h"

#include <algorithm>
#include <charconv>

#include "codec/json.h"
#include "net/url.h"

namespace varda::oip {
namespace {

// The inverse of http_status().
Code code_of(int status) {
  switch (status) {
    case 400:
    case 413:
      return Code::kInvalid;
    case 401:
      return Code::kUnauthenticated;
    case 403:
      return Code::kForbidden;
    case 404:
      return Code::kNotFound;
    case 429:
      return Code::kExhausted;
    case 501:
      return Code::kUnsupported;
    case 502:
    case 503:
      return Code::kUnavailable;
    case 504:
      return Code::kTimeout;
    default:
      return Code::kInternal;
  }
}

Error error_of(const net::HttpClient::Answer& answer) {
  const auto json = codec::parse_json(answer.body);
  std::string error_text = json.ok() ? (*json)["error"].as_string() : "";
  if (error_text.empty() && json.ok()) error_text = (*json)["reason"].as_string();
  return Error(code_of(answer.status), error_text.empty()
                                           ? "the server answered " + std::to_string(answer.status)
                                           : error_text);
}

template <typename T>
Result<Guess> best(std::span<const T> row, const std::vector<std::string>& labels) {
  const auto it = std::max_element(row.begin(), row.end());
  Guess out;
  out.index = static_cast<std::size_t>(it - row.begin());
  out.label = out.index < labels.size() ? labels[out.index] : std::to_string(out.index);
  out.probability = static_cast<double>(*it);
  return out;
}

}  // namespace

Client::Client(net::HttpClient& http, std::string url) : http_(http), url_(std::move(url)) {
  while (!url_.empty() && url_.back() == '/') url_.pop_back();
}

std::string Client::model_url(const std::string& model, const std::string& version) const {
  std::string out = url_ + "/v2/models/" + net::percent_encode(model);
  if (!version.empty()) out += "/versions/" + net::percent_encode(version);
  return out;
}

Result<net::HttpClient::Answer> Client::call(const Context& ctx, net::ClientRequest request) const {
  TRY(net::HttpClient::Answer answer, http_.call(ctx, std::move(request)));
  if (answer.status != 200) return error_of(answer);
  return answer;
}

Result<ModelMetadata> Client::metadata(const Context& ctx, const std::string& model,
                                       const std::string& version) const {
  TRY(const net::HttpClient::Answer answer, call(ctx, {.url = model_url(model, version)}));
  return parse_model_metadata(answer.body);
}

Result<bool> Client::ready(const Context& ctx, const std::string& model) const {
  TRY(const net::HttpClient::Answer answer,
      http_.call(ctx, {.url = model_url(model, "") + "/ready"}));
  if (answer.status == 200) return true;
  // Triton answers 400 where other servers answer 503.
  if (answer.status == 503 || answer.status == 400) return false;
  return error_of(answer);
}

Result<std::vector<IndexEntry>> Client::index(const Context& ctx) const {
  TRY(const net::HttpClient::Answer answer,
      call(ctx, {.method = "POST", .url = url_ + "/v2/repository/index", .body = "{}"}));
  return parse_index(answer.body);
}

Result<InferResponse> Client::infer(const Context& ctx, const std::string& model,
                                    const InferRequest& request, const std::string& version) const {
  Message message = write_infer_request(request);
  net::ClientRequest http{.method = "POST",
                          .url = model_url(model, version) + "/infer",
                          .body = std::move(message.body)};
  http.headers.add("Content-Type", std::string(message.content_type()));
  if (message.json_length)
    http.headers.add(std::string(kJsonLengthHeader), std::to_string(*message.json_length));
  TRY(net::HttpClient::Answer answer, call(ctx, std::move(http)));
  const auto length = answer.headers.find(kJsonLengthHeader);
  return parse_infer_response(std::make_shared<const std::string>(std::move(answer.body)), length)
      .context("the server's answer");
}

Result<Guess> top(const tensor::Tensor& scores, std::size_t row,
                  const std::vector<std::string>& labels) {
  const tensor::Shape& shape = scores.shape();
  const std::size_t rows = shape.size() < 2 ? 1 : static_cast<std::size_t>(shape[0]);
  if (scores.size() == 0 || row >= rows) {
    return Error(Code::kInvalid, "the scores of shape " + tensor::to_string(shape) +
                                     " have no row " + std::to_string(row));
  }
  const std::size_t classes = scores.size() / rows;
  if (scores.dtype() == tensor::DType::kFp32)
    return best(scores.values<float>().subspan(row * classes, classes), labels);
  if (scores.dtype() == tensor::DType::kFp64)
    return best(scores.values<double>().subspan(row * classes, classes), labels);
  return Error(Code::kInvalid,
               "scores are FP32 or FP64, not " + std::string(to_string(scores.dtype())));
}

namespace {

constexpr std::string_view kLabels = "labels";
constexpr std::string_view kScores = "scores";
constexpr std::string_view kBoxes = "boxes";

// Whether the model returns labels and scores, best first.
bool names_labels(const ModelMetadata& metadata) {
  const auto has = [&](std::string_view name, tensor::DType dtype) {
    return std::any_of(metadata.outputs.begin(), metadata.outputs.end(),
                       [&](const tensor::Spec& spec) {
                         return spec.name == name && spec.dtype == dtype && !spec.shape.empty();
                       });
  };
  return has(kLabels, tensor::DType::kBytes) && has(kScores, tensor::DType::kFp32);
}

// Whether the model returns one score and one box [left, top, right, bottom] for each label.
bool has_boxes(const ModelMetadata& metadata) {
  const auto rank = [&](std::string_view name) {
    const auto at = std::find_if(metadata.outputs.begin(), metadata.outputs.end(),
                                 [&](const tensor::Spec& spec) {
                                   return spec.name == name && spec.dtype == tensor::DType::kFp32;
                                 });
    return at == metadata.outputs.end() ? 0 : at->shape.size();
  };
  return rank(kBoxes) == 2 && rank(kScores) == 1;
}

const tensor::Tensor* output_of(const InferResponse& response, std::string_view name,
                                tensor::DType dtype) {
  for (const tensor::Named& output : response.outputs)
    if (output.name == name && output.tensor.dtype() == dtype) return &output.tensor;
  return nullptr;
}

Result<Guess> guess_of(std::string_view label, float score,
                       const std::vector<std::string>& labels) {
  Guess out{.label = std::string(label), .probability = score};
  // Without class names a label is the class's number.
  const auto at = std::find(labels.begin(), labels.end(), out.label);
  out.index = static_cast<std::size_t>(at - labels.begin());
  if (at == labels.end() &&
      std::from_chars(out.label.data(), out.label.data() + out.label.size(), out.index).ec !=
          std::errc()) {
    return Error(Code::kInternal, "the server answered with the label \"" + out.label +
                                      "\", which its metadata does not name");
  }
  return out;
}

Result<Guess> first_label(const InferResponse& response, const std::vector<std::string>& labels) {
  const tensor::Tensor* const names = output_of(response, kLabels, tensor::DType::kBytes);
  const tensor::Tensor* const scores = output_of(response, kScores, tensor::DType::kFp32);
  if (names == nullptr || scores == nullptr)
    return Error(Code::kInternal, "the server answered without labels and scores");
  if (names->size() == 0 || scores->size() == 0)
    return Error(Code::kNotFound, "the model found nothing in the image");
  return guess_of(names->strings().front(), scores->values<float>().front(), labels);
}

Result<std::vector<Detection>> all_detections(const InferResponse& response,
                                              const std::vector<std::string>& labels) {
  const tensor::Tensor* const names = output_of(response, kLabels, tensor::DType::kBytes);
  const tensor::Tensor* const scores = output_of(response, kScores, tensor::DType::kFp32);
  const tensor::Tensor* const boxes = output_of(response, kBoxes, tensor::DType::kFp32);
  if (names == nullptr || scores == nullptr || boxes == nullptr ||
      names->size() != scores->size() || boxes->size() != 4 * scores->size()) {
    return Error(Code::kInternal,
                 "the server answered without a label, a score and a box for each detection");
  }
  std::vector<Detection> out;
  const std::vector<std::string_view> class_names = names->strings();
  for (std::size_t i = 0; i < class_names.size(); ++i) {
    TRY(Guess guess, guess_of(class_names[i], scores->values<float>()[i], labels));
    const auto box = boxes->values<float>().subspan(4 * i, 4);
    out.push_back({std::move(guess), {box[0], box[1], box[2], box[3]}});
  }
  return out;
}

}  // namespace

Result<Predictor> Predictor::open(const Context& ctx, const Client& client,
                                  const std::string& model) {
  TRY(ModelMetadata metadata, client.metadata(ctx, model));
  if (metadata.inputs.size() != 1 || metadata.outputs.empty()) {
    return Error(Code::kInvalid, "model \"" + model + "\" takes " +
                                     std::to_string(metadata.inputs.size()) +
                                     " inputs: it is not an image classifier");
  }
  return Predictor(client, std::move(metadata));
}

Result<Prediction> Predictor::predict(const Context& ctx, const Images& images,
                                      std::size_t index) const {
  InferRequest request;
  request.encoding = Encoding::kBinary;
  const bool labelled = names_labels(metadata_), detector = labelled && has_boxes(metadata_);
  if (labelled) {
    request.outputs = {{std::string(kLabels), Encoding::kBinary},
                       {std::string(kScores), Encoding::kBinary}};
    if (detector) request.outputs.push_back({std::string(kBoxes), Encoding::kBinary});
  } else {
    request.outputs = {{metadata_.outputs[0].name, Encoding::kBinary}};
  }
  TRY(tensor::Tensor tensor, image_tensor(images, index, 1, metadata_.inputs[0]));
  request.inputs.push_back({metadata_.inputs[0].name, std::move(tensor)});
  const SteadyTime start = system_clock().now();
  TRY(const InferResponse response, client_->infer(ctx, metadata_.name, request));
  const Duration latency = system_clock().now() - start;
  if (response.outputs.empty())
    return Error(Code::kInternal, "the server answered without outputs");
  Prediction out{
      .version = response.model_version, .latency = latency, .parameters = response.parameters};
  if (detector) {
    TRY(out.detections, all_detections(response, metadata_.labels));
    if (!out.detections->empty()) out.guess = out.detections->front().guess;
    return out;
  }
  TRY(out.guess, labelled ? first_label(response, metadata_.labels)
                          : top(response.outputs[0].tensor, 0, metadata_.labels));
  return out;
}

}  // namespace varda::oip
