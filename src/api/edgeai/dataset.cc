#include "api/edgeai/dataset.h"

#include <algorithm>

#include "api/describe.h"
#include "api/period.h"
#include "api/rule.h"

namespace varda::api {

namespace {

constexpr std::string_view kNodeNamePattern = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$";
constexpr std::string_view kDataUrlPattern = "^(/|file:///|https?://[^/]|s3://[^/]|pvc://[^/])";
constexpr std::string_view kDataDigestPattern = "^([0-9a-f]{64})?$";

template <Group G>
constexpr const char* kDataUrl = G == Group::kEdgeai ? "dataUrl" : "url";

}  // namespace

const std::vector<std::string>& known_dataset_formats() {
  static const std::vector<std::string> names{"csv",  "tsv", "txt", "jsonl",       "json",
                                              "coco", "voc", "xml", "imagefolder", "idx"};
  return names;
}

std::int64_t DatasetSpec::recount_seconds() const { return period_seconds(recount_period); }

template <Group G>
void DatasetSpecOf<G>::describe(Type<DatasetSpecOf>& t) {
  using S = DatasetSpec;
  t.doc("Location of the data, and the format of its samples.");
  t.template field<std::string>(kDataUrl<G>, &S::url,
                                "Location of the data on the node: an absolute path or a file:/// "
                                "URL. Data behind http, https, s3 and pvc URLs is not counted; "
                                "training runs without a node read it. pvc://CLAIM is a "
                                "PersistentVolumeClaim of the namespace.")
      .required()
      .length(1, 4096);
  t.template field<std::string>("format", &S::format,
                                "Format of the data: csv, tsv, txt, jsonl, json, coco, voc (also "
                                "named xml), imagefolder or idx, in upper or lower case. "
                                "Other formats are accepted, but not counted.")
      .required()
      .length(1, 63);
  t.template field<std::string>("nodeName", &S::node_name, "Name of the node that has the data.")
      .length(0, 253)
      .pattern(kNodeNamePattern);
  if constexpr (G == Group::kSedna) {
    t.template field<std::string>(
         "credentialName", &S::credential_name,
         "Name of a Secret for jobs that read from an object store. Counting does not use it.")
        .length(0, 253);
  }
  t.template field<std::string>("header", &S::header,
                                "Extension: whether the first record of csv and tsv names the "
                                "columns. Put yes and no in quotes: "
                                "YAML may read them as booleans. Default: auto.")
      .one_of({"auto", "yes", "no"});
  t.template field<std::string>(
       "sha256", &S::sha256,
       "Extension: SHA-256 of the archive or file behind an http, https or "
       "s3 URL. Training runs without a node need it.")
      .length(0, 64)
      .pattern(kDataDigestPattern);
  t.template field<std::string>(
       "path", &S::path,
       "Extension: path of the data in the archive or in the volume of the "
       "claim. Default: all of it.")
      .length(0, 1024);
  t.template field<Json>("recountPeriod", &S::recount_period,
                         "Extension: period after which the node reads every byte again, not only "
                         "appended bytes. Seconds, or a "
                         "time such as 90m, 12h or 1d12h. Default: the agent's period.")
      .int_or_string()
      .range(0, kPeriodSecondsMax)
      .pattern(kPeriodPattern)
      .length(0, kPeriodLengthMax);
  t.template field<std::optional<Replication>>(
      "replication", &S::replication,
      "Extension: nodes that get a copy of the data. Default: no copies.");
  t.keep_unknown(&S::unknown);
  t.rule(
      rules::matches(kDataUrl<G>, kDataUrlPattern,
                     "must be an absolute path, a file:/// URL, or an http, https, s3 or pvc URL"));
}

void DatasetStatus::describe(Type<DatasetStatus>& t) {
  using S = DatasetStatus;
  t.doc("Results of the count.");
  t.field("numberOfSamples", &S::number_of_samples,
          "Number of samples. Absent before the first count.")
      .format("int64");
  t.field("updateTime", &S::update_time, "Time when the node last found the data changed.")
      .format("date-time");
  t.field("bytes", &S::bytes, "Number of counted bytes.").format("int64");
  t.field("exact", &S::exact, "Whether numberOfSamples is exact.");
  t.field("inexactBecause", &S::inexact_because, "Reason why numberOfSamples may be incomplete.")
      .length(0, 1024);
  t.field("malformed", &S::malformed, "Number of malformed records.").format("int64");
  t.field("firstMalformed", &S::first_malformed, "The first malformed record.");
  t.field("classes", &S::classes,
          "Samples or annotations of each class, if the format has classes. Only the first 64 "
          "classes by name.")
      .items_max(EdgeDatasetReport::kClassesMax)
      .list_map({"name"});
  t.field("furtherClasses", &S::further_classes,
          "Samples or annotations of all other classes together.")
      .format("int64");
  t.field(
       "header", &S::header,
       "Whether the first record names the columns: yes or no. Absent if the format has no header, "
       "or if the files of a folder differ.")
      .length(0, 8);
  t.field("fingerprint", &S::fingerprint, "Identifier of this state of the data.").length(0, 128);
  t.field("node", &S::node, "The node that counted.").length(0, 253);
  t.field("replication", &S::replication, "State of the copies on other nodes.");
  t.field("conditions", &S::conditions,
          "Ready: the data is counted. ReportAccepted: False while the node's report is "
          "impossible. The guide lists the reasons.")
      .items_max(16)
      .list_map({"type"});
  t.field("observedGeneration", &S::observed_generation,
          "metadata.generation that this status describes.")
      .format("int64");
  t.keep_unknown(&S::unknown);
}

template <Group G>
void DatasetOf<G>::describe(Type<DatasetOf>& t) {
  t.doc("Data on a node. The node counts the samples, and counts again when the data changes.");
  t.field("metadata", &DatasetOf::metadata, "Standard object metadata.");
  t.field("spec", &DatasetOf::spec, "Location of the data, and the format of its samples.")
      .required();
  t.field("status", &DatasetOf::status, "Results of the count. Only the operator writes them.");
  t.keep_unknown(&DatasetOf::unknown);
}

template <Group G>
const Kind& DatasetOf<G>::kind() {
  constexpr bool sedna = G == Group::kSedna;
  static const Kind kind{
      .resource = {sedna ? "sedna.io" : "edgeai.io", "v1alpha1", "Dataset", "datasets", true},
      .singular = "dataset",
      .page = sedna ? "sedna-dataset" : "",
      .short_names = {sedna ? "sdset" : "dset"},
      .columns =
          {
              {"NumberOfSamples", "integer", ".status.numberOfSamples",
               "The number of samples in the dataset"},
              {"Node", "string", ".spec.nodeName", "The node that has the data"},
              {"Spec", "string", ".spec", "Location and format of the data"},
              {"Age", "date", ".metadata.creationTimestamp", ""},
          },
      .scale = {},
      .notes = {sedna ? "The same as the Dataset of edgeai.io, with the names of Sedna. Manifests "
                        "for Sedna apply\n  unchanged."
                      : "`sedna.io/v1alpha1` has the same kind, with the names of Sedna.",
                "An object with a format or URL that no node can count is accepted. The condition "
                "Ready has the\n  reason."},
      .schema = &type_info<DatasetOf>().schema,
  };
  return kind;
}

template <Group G>
Result<DatasetOf<G>> DatasetOf<G>::from_json(const Json& object) {
  return read_object<DatasetOf>(object);
}
template <Group G>
Json DatasetOf<G>::to_json() const {
  return write_object(*this);
}
Json DatasetStatus::to_json() const { return write_part(*this); }

template struct DatasetSpecOf<Group::kEdgeai>;
template struct DatasetSpecOf<Group::kSedna>;
template struct DatasetOf<Group::kEdgeai>;
template struct DatasetOf<Group::kSedna>;

}  // namespace varda::api
