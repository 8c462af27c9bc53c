#!/bin/sh
# One prompt and its answers for a shipped kernel: studies/models/example.sh [TASK] > studies/models/example.md
# The server draws its answers from the grammar that it is sent, as a model of random weights does; no GPU, no download.
set -eu
cd "$(dirname "$0")/../.."
task=${1:-rmsnorm}
python=${PYTHON:-.venv/bin/python}
folder=$(mktemp -d)
$python tests/propose/scripted_server.py 600 > "$folder/url" &
server=$!
trap 'kill $server; rm -r "$folder"' EXIT
while [ ! -s "$folder/url" ]; do sleep 0.1; done
ask="$python studies/models/proposals.py studies/$task/$task.py --target h100 --quiet --proposer openai:$(cat "$folder/url")#random?answers=edit"
echo "# One prompt for \`$task\` and four answers to it (\`studies/models/example.sh $task\`)"
echo
echo "The system text, then the page, as \`kernelsearch page --answers edit\` prints them:"
echo
echo '```'
$python -m kernelsearch page studies/$task/$task.py --answers edit --target h100 --quiet
echo '```'
echo
echo "Four answers of random weights to it, as \`--record\` keeps them:"
echo
echo '```'
$ask -n 4 --record "$folder/answers" > "$folder/fates"
$python -c "
import json, sys
for line in open(sys.argv[1]):
    for sample in json.loads(line).get('samples', ()):
        print(sample['text'].rstrip(), end='\n\n')
" "$folder/answers"
echo '```'
echo
echo "And what became of them:"
echo
echo '```'
cat "$folder/fates"
echo '```'
