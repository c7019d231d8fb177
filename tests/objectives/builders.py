"""Options of question answering."""

from fairseq_xl.objectives.question_answering import QuestionAnsweringConfig


def options(**changed):
    values = dict(length=30, question_length=8, stride=10, answer_length=30, normalization="squad")
    return QuestionAnsweringConfig(**(values | changed))
