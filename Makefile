# make run     run kernel.ipynb, on the sample or on what the KERNEL_… variables name
# make test    run every test, nbval on the notebook included
# make score   score the comments of a csv, INPUT=comments.csv, with the last run's models: scores.csv
# make html    write the last run as a page, kernel.html, its definitions folded away
# make outputs run the sample and store its outputs in kernel.ipynb
# make push    push the notebook to Kaggle under your own name, where it runs
# make status  tell how that run goes
# make results fetch what it left, check the submission and read the report out
# make submit  submit it to the competition
# make publish publish the models as a Kaggle Model

SHELL = bash
PYTHON = python3
VENV_PYTHON = .venv/bin/python
JUPYTER = .venv/bin/jupyter
OUTPUT = "$${KERNEL_OUTPUT_DIR:-.}"
# what is stored and tested is the run with the default settings, whatever the caller's environment says
DEFAULT_SETTINGS = env $$(env | sed -n 's/^\(KERNEL_[A-Z_]*\)=.*/-u \1/p')

run: .venv/installed
	mkdir -p $(OUTPUT)
	set -o pipefail; .venv/bin/papermill --log-output --no-progress-bar kernel.ipynb $(OUTPUT)/kernel.executed.ipynb 2>&1 | \
		grep --line-buffered --invert-match -E '^(Executing|Ending) Cell'

test: .venv/installed
	$(DEFAULT_SETTINGS) .venv/bin/python -m pytest --nbval --nbval-current-env --nbval-cell-timeout 600 \
		--nbval-sanitize-with tests/outputs.cfg kernel.ipynb tests
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .

score: .venv/installed
	@test -n '$(INPUT)' || { echo 'make score INPUT=comments.csv scores the comments of that file' >&2; exit 1; }
	@test -f $(OUTPUT)/models/models.json || { echo 'There are no models yet: make run' >&2; exit 1; }
	@$(VENV_PYTHON) $(OUTPUT)/models/toxicity.py '$(INPUT)' > $(OUTPUT)/scores.csv.part
	@mv $(OUTPUT)/scores.csv.part $(OUTPUT)/scores.csv; echo $(OUTPUT)/scores.csv

html: .venv/installed
	test -f $(OUTPUT)/kernel.executed.ipynb || $(MAKE) run
	$(JUPYTER) nbconvert --log-level=ERROR --to html --TemplateExporter.extra_template_paths=tests \
		--TemplateExporter.template_file=page.html.j2 $(OUTPUT)/kernel.executed.ipynb --output kernel.html

outputs: .venv/installed
	$(DEFAULT_SETTINGS) .venv/bin/python -c "import nbclient, nbformat; notebook = nbformat.read('kernel.ipynb', 4); \
		nbclient.NotebookClient(notebook, record_timing=False, coalesce_streams=True).execute(); nbformat.write(notebook, 'kernel.ipynb')"

.venv/installed: requirements.txt
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --requirement requirements.txt
	.venv/bin/python -m pip install --quiet --upgrade --no-deps --target .venv/newest keras  # a test scores with it
	touch $@

push status results submit publish: .venv/installed
	@$(VENV_PYTHON) on_kaggle.py $@

.PHONY: run test score html outputs push status results submit publish
